"""Workload files: COSBench's XML, ssbench's JSON and our TOML become the one model; what is not known is refused."""

from pathlib import Path

import pytest

from storage_cluster.bench import formats, parameters
from storage_cluster.bench.errors import WorkloadError
from storage_cluster.bench.model import Arrivals, Division, Kind, OpenLoop, Step, Workload

FILES = Path(__file__).parents[1] / "workloads"
XML = (FILES / "sample.xml").read_text()
SCENARIO = (FILES / "small.scenario").read_text()
TOML = (FILES / "open.toml").read_text()


def parse_text(text: str, name: str = "file.xml") -> Workload:
    return formats.parse(text.encode(), name)[0]


def refusal(text: str, name: str = "file.xml") -> str:
    with pytest.raises(WorkloadError) as raised:
        formats.parse(text.encode(), name)
    return str(raised.value)


def test_cosbench_stages_and_works() -> None:
    workload = parse_text(XML)
    assert (workload.name, workload.source) == ("sample", "cosbench")
    names = ["init", "delay", "prepare", "main", "cleanup", "delay-2", "dispose"]
    assert [stage.name for stage in workload.stages] == names
    assert [stage.closure_delay_s for stage in workload.stages] == [0, 60, 0, 0, 0, 1, 0]
    main, removal = workload.stages[3].works
    assert (main.workers, main.runtime_s, main.rampup_s, main.rampdown_s, main.interval_s) == (8, 300, 10, 5, 2)
    assert (main.acceptable_failures_ppm, main.kind) == (1000, None)
    assert (removal.total_ops, removal.total_bytes, removal.driver) == (12, 1_000_000, "driver2")
    assert removal.acceptable_failures_ppm == 200_000
    assert main.auth.option("username") == "test:tester"


def test_cosbench_operations() -> None:
    workload = parse_text(XML)
    read, write, listing = workload.stages[3].works[0].operations
    assert [(each.kind, each.ratio) for each in (read, write, listing)] == [
        (Kind.READ, 70),
        (Kind.WRITE, 20),
        (Kind.LIST, 10),
    ]
    assert (read.hash_check, write.hash_check, str(write.sizes)) == (True, False, "c(64)KB")
    assert (read.containers.name(3), write.objects and write.objects.name(11)) == ("mycontainers_3", "myobjects_11")
    assert listing.objects is None
    delete = workload.stages[3].works[1].operations[0]
    assert delete.objects
    assert (delete.containers.name(1), delete.objects.name(7)) == ("other1_c", "x7.bin")
    assert delete.division is Division.OBJECT


def test_what_cosbench_may_say_without_effect_is_noticed_with_its_line() -> None:
    assert parse_text(XML).notices == ()
    given = '<storage type="swift" config="token=t;storage_url=http://a/v1" />'
    text = XML.replace('<storage type="swift" />', given)
    assert text != XML
    line = 1 + text[: text.index(given)].count("\n")
    assert parse_text(text).notices == tuple(
        f"file.xml line {line}: attribute config of <storage>: key {key} of <storage> has no effect, since auth swauth "
        "gives its own"
        for key in ("token", "storage_url")
    )
    (notice,) = parse_text(XML.replace('type="swauth"', 'type="none"').replace("password=testing;", "")).notices[:1]
    assert "key username of <auth> has no effect with auth none" in notice
    (notice,) = parse_text(XML.replace('<work type="dispose"', '<work type="dispose" runtime="5"')).notices
    assert notice == (
        "file.xml line 45: attribute runtime of <work> has no effect: a work of type dispose ends by itself"
    )


def test_cosbench_tokens_are_fetched_once_or_by_every_work() -> None:
    assert {work.auth.cached for stage in parse_text(XML).stages for work in stage.works} == {True}
    text = XML.replace("password=testing;", "password=testing;caching=false;")
    assert {work.auth.cached for stage in parse_text(text).stages for work in stage.works} == {False}
    assert "key caching: 'no' is neither true nor false" in refusal(text.replace("caching=false", "caching=no"))


def test_cosbench_scans_divide_what_cosbench_divides() -> None:
    stages = {stage.name: stage.works[0] for stage in parse_text(XML).stages}
    divisions = {name: stages[name].operations[0].division for name in ("init", "prepare", "cleanup", "dispose")}
    assert divisions == {"init": "container", "prepare": "object", "cleanup": "object", "dispose": "container"}
    assert stages["prepare"].acceptable_failures_ppm == 0
    assert stages["prepare"].operations[0].hash_check
    assert stages["delay"].kind is Kind.DELAY


def test_what_a_level_says_holds_below_it() -> None:
    text = XML.replace('<workload name="sample"', '<workload config="cprefix=mine" name="sample"')
    workload = parse_text(text)
    assert workload.stages[0].works[0].operations[0].containers.prefix == "mine"
    assert workload.stages[3].works[1].operations[0].containers.prefix == "other"


def test_a_work_may_have_a_store_of_its_own() -> None:
    own = '<storage type="swift" config="timeout=5000;policy=gold"/><operation type="delete"'
    text = XML.replace('<operation type="delete"', own, 1)
    main, removal = parse_text(text).stages[3].works
    assert (main.storage.option("policy"), removal.storage.option("policy")) == ("", "gold")


WORK = '<work name="main" workers="8" runtime="300"'
REFUSED = [
    ("attribute", 'rampup="10"', 'rampop="10"', "line 25: attribute rampop of <work>: unknown"),
    ("attribute of a second line", 'totalBytes="1000000"', 'totalByte="1"', "line 31: attribute totalByte of <work>"),
    ("element", '<work type="dispose"', '<wrok type="dispose"', "line 45: <wrok>: unknown within <workstage>"),
    ("config key", "hashcheck=true;containers=u", "haschcheck=true;containers=u", "line 26: attribute config of"),
    ("key of another operation", 'ratio="10" config="', 'ratio="10" config="sizes=c(1)B;', "sizes"),
    ("selector", "objects=s(11,20)", "objects=q(11,20)", "line 27: attribute config of <operation>: key objects: 'q"),
    ("unit", "c(64)KB", "c(64)KiB", "no unit"),
    ("ratios", 'ratio="70"', 'ratio="71"', "do not add up to 100"),
    ("limit", ' runtime="300"', "", "no limit"),
    ("number", 'workers="8"', 'workers="eight"', "'eight' is no whole number of 1 or more"),
    ("no workers", 'name="main" workers="8"', 'name="main"', "attribute workers is missing"),
    ("afr", 'afr="1000"', 'afr="1000001"', "from 0 to 1,000,000"),
    ("operation", 'type="delete"', 'type="filewrite"', "(files and several parts are not supported)"),
    ("work", 'work type="dispose"', 'work type="mprepare"', "(files and several parts are not supported)"),
    ("missing key", "objects=r(1,20)", "", "key objects is missing"),
    ("chance in a scan", 'workers="2" config="containers=r(1,4)', 'workers="2" config="containers=u(1,4)', "by chance"),
    ("trigger", '<workstage name="cleanup"', '<workstage trigger="x.sh" name="cleanup"', "triggers are not supported"),
    ("division", 'division="object"', 'division="half"', "'half' is none of none, container, object"),
    ("key without value", "csuffix=_c;", "csuffix;", "is not key=value"),
    ("boolean", "hashcheck=true;containers=u", "hashcheck=yes;containers=u", "neither true nor false"),
    ("text", "</workflow>", "hello</workflow>", "line 48: text 'hello' outside of a tag"),
    ("not XML", "</workflow>", "", "not XML"),
    ("unescaped tag", "password=testing", "password=<secret>", "write < in an attribute as &lt;"),
    ("document type", "<workload ", '<!DOCTYPE a [<!ENTITY b "c">]><workload ', "document types are not read"),
    ("second auth", "<workflow>", '<auth type="none"/><workflow>', "a second one within <workload>"),
    ("auth key", "username=", "user=", "key 'user' is unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_cosbench_refuses(old: str, new: str, said: str) -> None:
    assert old in XML
    message = refusal(XML.replace(old, new, 1))
    assert said in message
    assert message.startswith("file.xml line ")


def test_ssbench_becomes_stages() -> None:
    workload = parse_text(SCENARIO, "small.scenario")
    containers, initial, run, delete = (stage.works[0] for stage in workload.stages)
    assert (workload.source, containers.workers, initial.workers) == ("ssbench", 10, 7)
    assert [each.population for each in initial.operations] == ["tiny", "small"]
    assert containers.operations[0].containers.name(4) == "ssbench_000004_default_policy"
    assert initial.operations[0].objects and initial.operations[0].objects.name(9) == "tiny_000009"
    assert (run.total_ops, run.runtime_s, run.retries_max) == (50, 0, 10)
    shares = {each.name: round(each.ratio, 3) for each in run.operations}
    assert shares == {"create tiny": 22.5, "read tiny": 30, "update tiny": 15, "delete tiny": 7.5, "read small": 25}
    assert [each.population for each in delete.operations] == ["tiny", "small"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"user_count": 7,', '"user_count": 7, "users": 8,', "line 23: users: unknown; known are"),
        ('"size_max": 65536', '"size_max": 1', "line 6: sizes[1].size_max: 1 is less than size_min"),
        ('"user_count": 7,', "", "user_count: is missing"),
        ("[3, 4, 2, 1]", "[3, 4, 2]", "line 22: crud_profile: [3, 4, 2] is not four numbers"),
        ("[3, 4, 2, 1]", "[0, 0, 0, 0]", "all four are 0"),
        ('"small": 3', '"large": 3', "initial_files.large: unknown; known are tiny, small, unused"),
        ('"operation_count": 50', '"operation_count": 50, "run_seconds": 5', "give one of them"),
        ('"operation_count": 50', '"operation_count": "many"', "'many' is not a whole number"),
        ('"user_count": 7,', '"user_count": 7,,', "line 23: not JSON"),
    ],
)
def test_ssbench_refuses(old: str, new: str, said: str) -> None:
    assert old in SCENARIO
    assert said in refusal(SCENARIO.replace(old, new, 1), "small.scenario")


def test_toml_becomes_the_model() -> None:
    workload, sweep = formats.parse(TOML.encode(), "open.toml")
    work = workload.stages[1].works[0]
    assert work.open_loop == OpenLoop(100.0, Arrivals.EVEN)
    assert work.ramp == (Step(2.0, 300.0),)
    assert (work.workers, work.workers_max, work.runtime_s, work.retries_max) == (16, 16, 2.5, 2)
    assert [operation.title for operation in work.operations] == ["write", "get"]
    assert workload.stages[1].closure_delay_s == 1
    assert sweep == {"main.workers": ["1", "2"], "main.main.write.sizes": ["c(1)B", "c(1)MB"]}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("workers = 16", "wrokers = 16", "line 19: stage[2].work[1].wrokers: unknown"),
        ("runtime_s = 2.5", "", "it has no limit"),
        ('kind = "init"', 'kind = "init"\nruntime_s = 9.0', "[1].runtime_s: a work of kind init ends by itself"),
        ('kind = "init"', 'kind = "init"\nrate_per_s = 9.0', "[1].rate_per_s: a work of kind init ends by itself"),
        ('kind = "init"', 'kind = "read"', "line 12: stage[1].work[1].kind: read is an operation's"),
        ('kind = "write"', 'kind = "init"', "init is a work's kind"),
        ('arrivals = "even"', 'arrivals = "odd"', "'odd' is not a valid Arrivals"),
        ('objects = "u(1,100)"', 'objects = "u(9,1)"', "line 27: stage[2].work[1].operations[2].objects"),
        ("workers = 16", "workers = 0", "0 is less than 1"),
        ("workers = 16", 'workers = "16"', "'16' is not a whole number"),
        ("workers = 16", "workers = = 16", "not TOML"),
        ("to = 300.0", "two = 300.0", "stage[2].work[1].ramp[1].to: is missing"),
        ('"main.workers" = [1, 2]', '"main.workers" = 1', "is not a list of values"),
    ],
)
def test_toml_refuses(old: str, new: str, said: str) -> None:
    assert old in TOML
    message = refusal(TOML.replace(old, new, 1), "open.toml")
    assert said in message


def is_limited(workload: Workload, runtime_s: float) -> bool:
    """Whether every mix has that run time, and nothing that ends by itself has one."""
    works = [work for stage in workload.stages for work in stage.works]
    return all(work.runtime_s == (runtime_s if work.kind is None else 0) for work in works)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("main.workers", "3", lambda w: [work.workers for work in w.stages[3].works] == [3, 3]),
        ("main.main.workers", "3", lambda w: [work.workers for work in w.stages[3].works] == [3, 2]),
        ("*.runtime_s", "9", lambda w: is_limited(w, 9)),
        ("*.workers", "9", lambda w: {work.workers for stage in w.stages for work in stage.works} == {9}),
        ("main.main.runtime_s", "1.5", lambda w: w.stages[3].works[0].runtime_s == 1.5),
        ("main.main.write.sizes", "c(7)B", lambda w: str(w.stages[3].works[0].operations[1].sizes) == "c(7)B"),
        ("main.main.write.objects", "u(1,2)", lambda w: w.stages[3].works[0].operations[1].objects.selector.high == 2),
        ("main.main.rate_per_s", "50", lambda w: w.stages[3].works[0].open_loop.rate_per_s == 50),
        ("main.main.keep_alive", "false", lambda w: not w.stages[3].works[0].keep_alive),
        ("delay.closure_delay_s", "0", lambda w: w.stages[1].closure_delay_s == 0),
    ],
)
def test_any_parameter_can_be_set(name: str, value: str, found) -> None:
    assert found(parameters.change(parse_text(XML), name, value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", "3"),
        ("main.wrokers", "3"),
        ("nowhere.workers", "3"),
        ("main.workers", "x"),
        ("a.b.c.d.e", "1"),
        ("main.operations", "1"),
        ("prepare.runtime_s", "1"),
        ("prepare.rate_per_s", "1"),
    ],
)
def test_what_is_no_parameter_is_refused(name: str, value: str) -> None:
    with pytest.raises(WorkloadError, match=r"give STAGE\.PARAMETER=VALUE"):
        parameters.change(parse_text(XML), name, value)


def test_a_sweep_is_every_combination() -> None:
    assert list(parameters.combinations({"a": ["1", "2"], "b": ["x", "y"]})) == [
        {"a": "1", "b": "x"},
        {"a": "1", "b": "y"},
        {"a": "2", "b": "x"},
        {"a": "2", "b": "y"},
    ]
    assert list(parameters.combinations({})) == [{}]


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="cannot be read"):
        formats.load(tmp_path / "none.xml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match="is no text"):
        formats.load(tmp_path / "binary")
