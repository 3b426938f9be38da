"""gRPC over three hosts, many calls at once on one connection: a client, a front and a back, each hop one channel.

Each call has a method of its own, so logs and packets agree on which is which; the front passes the caller's trace id
on (`traceparent`, or in binary `grpc-trace-bin`, which grpcio hides from the program that is called: this one
gets it backwards in `judge-trace`). Truth: the times that all three log. Needs an interpreter that has grpcio.
"""

from benchmarks.real_systems import logs
from benchmarks.real_systems.interpreter import python_with
from benchmarks.real_systems.lab import Lab
from benchmarks.real_systems.scenario import Scenario, addresses, scenario
from benchmarks.real_systems.truth import Call, Truth

FRONT_PORT, BACK_PORT = 50_061, 50_062
CONTEXT = """
import json, os, sys, time, uuid
from concurrent.futures import ThreadPoolExecutor
import grpc
carrier = sys.argv[1]
def context_of(trace):
    if carrier == "traceparent":
        return [(carrier, f"00-{trace}-{uuid.uuid4().hex[:16]}-01")]
    context = bytes(2) + bytes.fromhex(trace) + bytes([1]) + os.urandom(8) + bytes([2, 1])
    return [(carrier, context), ("judge-trace", trace[::-1])]
def trace_of(metadata):
    fields = dict(metadata)
    return fields["traceparent"].split("-")[1] if carrier == "traceparent" else fields["judge-trace"][::-1]
"""
SERVER = (
    CONTEXT
    + """
address, log, behind = sys.argv[2:5]
LOG = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
channel = grpc.insecure_channel(behind) if behind != "-" else None
def answer(method, request, context):
    began, number, called = time.time_ns(), int(method.rsplit("Call", 1)[1]), 0
    if channel:
        trace = trace_of(context.invocation_metadata())
        metadata = [*context_of(trace), ("authorization", "Bearer planted-secret")]
        asked = time.time_ns()
        channel.unary_unary(f"/judge.Back/Call{number}")(request, metadata=metadata)
        called = time.time_ns() - asked
    else:
        time.sleep(0.005 + 0.001 * (number % 20))
    line = dict(n=number, began_ns=began, ended_ns=time.time_ns(), called_ns=called)
    os.write(LOG, (json.dumps(line) + chr(10)).encode())
    return b"x" * 400
class Service(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer(details.method, request, context))
server = grpc.server(ThreadPoolExecutor(80), options=(("grpc.max_concurrent_streams", 1000),))
server.add_generic_rpc_handlers((Service(),))
server.add_insecure_port(address)
server.start()
server.wait_for_termination()
"""
)
CLIENT = (
    CONTEXT
    + """
with grpc.insecure_channel(sys.argv[2]) as channel:
    grpc.channel_ready_future(channel).result(20)
    def ask(number):
        metadata = context_of(uuid.uuid4().hex)
        began = time.time_ns()
        channel.unary_unary(f"/judge.Front/Call{number}")(b"q" * 100, metadata=metadata)
        return dict(n=number, began_ns=began, ended_ns=time.time_ns())
    with ThreadPoolExecutor(int(sys.argv[3])) as pool:
        for line in pool.map(ask, range(int(sys.argv[4]))):
            print(json.dumps(line))
"""
)


@scenario
class GrpcAtOnce(Scenario):
    """640 calls, 64 at once."""

    name = "grpc-at-once"
    words = "gRPC over three hosts (grpcio), 640 calls, 64 at once on one connection of each hop"
    hosts = addresses(client="10.68.0.10", front="10.68.0.20", back="10.68.0.30")
    needs = (("python:grpc", "grpcio"),)
    at_once, count, carrier = 64, 640, "traceparent"

    def start(self, lab: Lab) -> None:
        server, self.client = lab.file("server.py", SERVER), lab.file("client.py", CLIENT)
        back, front = self._places(lab)
        for host, port, where, behind in (("back", BACK_PORT, back, "-"), ("front", FRONT_PORT, front, back)):
            log = str(lab.folder / f"{host}.log")
            lab.start(host, python_with("grpc"), str(server), self.carrier, where, log, behind, port=port, name=host)

    def traffic(self, lab: Lab) -> Truth:
        back, front = self._places(lab)
        asked = [self.carrier, front, str(self.at_once), str(self.count)]
        said = lab.run("client", python_with("grpc"), str(self.client), *asked)
        lab.file("client.log", said)
        served = {host: {line["n"]: line for line in logs.lines_of(lab.folder / f"{host}.log")} for host in self.hosts}
        outer = [
            self._call("Front", front, line["n"], line, served["front"][line["n"]])
            for line in served["client"].values()
        ]
        inner = [self._call("Back", back, number, None, line) for number, line in served["back"].items()]
        for call in inner:
            number = int(call.id.rsplit(" ", 1)[1])
            call.parent, call.client_ns = f"Front {number}", served["front"][number]["called_ns"]
        names = {front: rf"grpc|http/?2?|front:{FRONT_PORT}", back: rf"grpc|http/?2?|back:{BACK_PORT}"}
        return Truth(calls=[*outer, *inner], names=names, links_right=0.99)

    @staticmethod
    def _places(lab: Lab) -> tuple[str, str]:
        return f"{lab.address('back')}:{BACK_PORT}", f"{lab.address('front')}:{FRONT_PORT}"

    @staticmethod
    def _call(name: str, where: str, number: int, asked: dict[str, int] | None, served: dict[str, int]) -> Call:
        call = Call(f"{name} {number}", where, f"/judge.{name}/Call{number}", started_ns=served["began_ns"], parent="")
        call.server_ns = served["ended_ns"] - served["began_ns"]
        call.client_ns = asked["ended_ns"] - asked["began_ns"] if asked else None
        return call


@scenario
class GrpcTraceBin(GrpcAtOnce):
    """The same, 16 at once."""

    name = "grpc-trace-bin"
    words = "the same, 160 calls, 16 at once, with the trace context in binary metadata"
    at_once, count, carrier = 16, 160, "grpc-trace-bin"
