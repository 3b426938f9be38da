"""The one flag of the test suite; properties are tried without a time limit: machines are busy at times."""

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--regenerate`: write expected results anew instead of comparing with them; read the diff before committing."""
    parser.addoption("--regenerate", action="store_true", help="write expected results anew; read the diff")


@pytest.fixture
def regenerate(request: pytest.FixtureRequest) -> bool:
    """Whether expected results are to be written."""
    return bool(request.config.getoption("--regenerate"))
