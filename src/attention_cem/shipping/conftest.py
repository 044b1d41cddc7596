"""Keeps the doctest run out of the modules that import MLServer.

MLServer and NVIDIA's gRPC client define the same protobuf messages, so that one process can import only one of them;
the tests import NVIDIA's and start MLServer in processes of its own.
"""

collect_ignore = ["grpc_front.py", "runtime.py", "server.py"]
