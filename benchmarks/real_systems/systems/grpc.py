"""gRPC: PyPI's grpcio at both ends, calls of one answer and calls that stream answers.

Truth: the client's own times of each call and the server's. Needs an interpreter that has grpcio: this one, or the one
that the environment variable REAL_SYSTEMS_PYTHON names.
"""

from benchmarks.real_systems import logs
from benchmarks.real_systems.interpreter import python_with
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth

PORT = 50_051
SERVER = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
import grpc
LOG = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(number, began):
    os.write(LOG, (json.dumps(dict(n=number, began_ns=began, ended_ns=time.time_ns())) + chr(10)).encode())
def one(request, context):
    began, number = time.time_ns(), int(request)
    time.sleep(0.008 + 0.002 * (number % 8))
    note(number, began)
    return b"x" * 400
def several(request, context):
    began, number = time.time_ns(), int(request)
    for _ in range(5):
        time.sleep(0.06)
        yield b"x" * 400
    note(number, began)
class Service(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/judge.Judge/One":
            return grpc.unary_unary_rpc_method_handler(one)
        return grpc.unary_stream_rpc_method_handler(several)
ages = (("grpc.max_connection_age_ms", int(sys.argv[3])), ("grpc.max_connection_age_grace_ms", 500))
server = grpc.server(ThreadPoolExecutor(16), options=ages if sys.argv[3] != "0" else ())
server.add_generic_rpc_handlers((Service(),))
server.add_insecure_port(sys.argv[1])
server.start()
server.wait_for_termination()
"""
CLIENT = """
import json, sys, time
import grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    grpc.channel_ready_future(channel).result(20)
    asked = channel.unary_stream("/judge.Judge/Several") if sys.argv[2] == "Several" else None
    one = channel.unary_unary("/judge.Judge/One")
    for number in range(int(sys.argv[3])):
        began = time.time_ns()
        list(asked(b"%d" % number)) if asked else one(b"%d" % number)
        print(json.dumps(dict(n=number, began_ns=began, ended_ns=time.time_ns())))
        time.sleep(0.005)
"""


class _Grpc(Scenario):
    """One channel, one call after the other."""

    hosts = addresses(client="10.68.0.10", rpc="10.68.0.20")
    needs = (("python:grpc", "grpcio"),)
    method, count, age_ms = "One", 80, 0

    def start(self, lab: Lab) -> None:
        server, self.client = lab.file("server.py", SERVER), lab.file("client.py", CLIENT)
        where = f"{lab.address('rpc')}:{PORT}"
        arguments = (where, str(lab.folder / "server.log"), str(self.age_ms))
        lab.start("rpc", python_with("grpc"), str(server), *arguments, port=PORT, name="grpc")

    def traffic(self, lab: Lab) -> Truth:
        where = f"{lab.address('rpc')}:{PORT}"
        said = lab.run("client", python_with("grpc"), str(self.client), where, self.method, str(self.count))
        lab.file("client.log", said)
        served = {line["n"]: line for line in logs.lines_of(lab.folder / "server.log")}
        calls = []
        for line in logs.lines_of(lab.folder / "client.log"):
            call = Call(f"rpc {line['n']}", where, started_ns=line["began_ns"], parent="")
            call.client_ns = line["ended_ns"] - line["began_ns"]
            call.server_ns = served[line["n"]]["ended_ns"] - served[line["n"]]["began_ns"]
            calls.append(call)
        return self.refine(Truth(calls=calls, names={where: rf"grpc|http/?2?|rpc:{PORT}"}))

    def refine(self, truth: Truth) -> Truth:
        """What is true of this one alone."""
        return truth


@scenario
class GrpcUnary(_Grpc):
    """80 calls of one answer."""

    name = "grpc"
    words = "gRPC (grpcio at both ends), 80 calls of 8 to 22 ms on one channel"


@scenario
class GrpcStreaming(_Grpc):
    """20 calls that stream 5 answers with 60 ms before each."""

    name = "grpc-streaming"
    words = "the same, 20 calls that stream 5 answers, the server sleeps 60 ms before each"
    method, count = "Several", 20

    def refine(self, truth: Truth) -> Truth:
        served = sum(call.server_ns or 0 for call in truth.calls) / len(truth.calls)
        truth.ledger = {
            "queue_ns+work_ns+response_idle_ns": (served, served),
            "request_network_ns+response_network_ns+stall_ns+send_held_ns": (0, 0),
        }
        return truth


@scenario
class GrpcConnectionAge(_Grpc):
    """The server ends each connection in good order (GOAWAY), and its client goes on with another."""

    name = "grpc-connection-age"
    words = "the same as `grpc`; the server ends each connection after 0.3 s"
    age_ms = 300
