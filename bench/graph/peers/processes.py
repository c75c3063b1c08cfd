"""Starting servers, ending them by their process id, and their memory."""

import os
import socket
import subprocess
import threading
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command, log, **options):
    with open(log, "ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, **options)


def stop(process, seconds=60):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(ready, what, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            return ready()
        except Exception as error:
            if time.monotonic() > end:
                raise RuntimeError(f"{what} did not become ready in {seconds} s") from error
            time.sleep(0.1)


def with_children(pid):
    pids = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    pids += with_children(int(child))
    except OSError:
        pass  # The process has ended.
    return pids


def proportional_memory(pids):
    """Resident bytes of the processes; what several share counts once."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
        except OSError:
            pass  # The process has ended.
    return total


class PeakMemory:
    """Samples the memory of processes twice a second."""

    def __init__(self, pids):
        self.peak = 0
        self.pids = pids
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self):
        while True:
            self.peak = max(self.peak, proportional_memory(self.pids()))
            if self.over.wait(0.5):
                return

    def stop(self):
        self.over.set()
        self.thread.join()
        return self.peak


def directory_bytes(path):
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
