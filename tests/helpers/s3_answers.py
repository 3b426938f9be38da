"""What a call of boto3's was answered, as short values that tables can hold."""

from typing import Any

from botocore.exceptions import ClientError

Answered = tuple[int, str]


def answer_of(call: Any, **arguments: Any) -> Answered:
    """Status and error code of a call; the code is "" if it succeeds."""
    try:
        answer = call(**arguments)
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"], str(error.response["Error"]["Code"])
    return answer["ResponseMetadata"]["HTTPStatusCode"], ""


def code_of(call: Any, **arguments: Any) -> str:
    """The error code of a call; "" if it succeeds."""
    return answer_of(call, **arguments)[1]


def put_all(client: Any, bucket: str, *keys: str, body: bytes | None = None) -> None:
    """Store an object under each key; its bytes are the key's, unless given."""
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=key.encode() if body is None else body)
