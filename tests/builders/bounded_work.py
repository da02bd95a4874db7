"""What a test's helper process does with its jobs: each is Python, and its value is the answer."""

from penstock.protocol.processes.bounded_process import serve

kept: list[bytes] = []


def work(job: bytes) -> bytes:
    return eval(job, {"kept": kept})


if __name__ == "__main__":
    serve(lambda: work)
