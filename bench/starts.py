#!/usr/bin/env python3
"""How long a start of the daemon takes until it is ready, with files that a supervisor has kept and without.

    bench/starts.py [ROUNDS]      as root; RAVELIN names the program

This process is the supervisor: it keeps the daemons' descriptors as systemd's store does. Each daemon has a pool of three
drives on files, and four volumes on loop devices but for the last one:

    kept     stopped by SIGTERM; the next start takes its files up
    killed   the same after SIGKILL
    plain    no supervisor keeps anything: the files end, and are made again
    none     no volume is attached

By turns in each round. Printed are the median, the least and the most.
"""

import fcntl
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

RAVELIN = os.path.realpath(os.environ.get("RAVELIN", "target/release/ravelin"))
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
BASE = tempfile.mkdtemp(prefix="ravelin-starts.", dir="/dev/shm")


class Daemon:
    def __init__(self, name, keeps, volumes):
        self.name, self.volumes, self.kept = name, volumes, {}
        self.place = f"{BASE}/{name}"
        os.mkdir(self.place)
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(f"{self.place}/notify")
        self.ready = threading.Event()
        self.environment = dict(
            os.environ,
            RAVELIN_SOCKET=f"{self.place}/socket",
            NOTIFY_SOCKET=f"{self.place}/notify",
            RAVELIN_UNIT="ravelin.service",
            PATH=f"{BASE}/bin:{os.environ['PATH']}",
        )
        if keeps:
            self.environment["RAVELIN_FDSTORE"] = "1"
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        while True:
            text, descriptors, _, _ = socket.recv_fds(self.notified, 8192, 8)
            lines = text.decode().split("\n")
            name = next((line[7:] for line in lines if line.startswith("FDNAME=")), None)
            if "FDSTOREREMOVE=1" in lines:
                for descriptor in self.kept.pop(name, []):
                    os.close(descriptor)
            elif "FDSTORE=1" in lines:
                self.kept.setdefault(name, []).extend(descriptors)
            if "READY=1" in lines:
                self.ready_at = time.monotonic()
                self.ready.set()

    def ravelin(self, *arguments):
        subprocess.run([RAVELIN, *arguments], env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def start(self):
        """Milliseconds until it is ready."""
        given = [(name, one) for name, all_of in self.kept.items() for one in all_of]

        def give():
            # High numbers first: a descriptor must not be overwritten before it has its place.
            high = [fcntl.fcntl(one, fcntl.F_DUPFD, 300) for _, one in given]
            for number, one in enumerate(high, 3):
                os.dup2(one, number, inheritable=True)
                os.close(one)

        self.environment["LISTEN_FDS"] = str(len(given))
        self.environment["LISTEN_FDNAMES"] = ":".join(name for name, _ in given)
        self.ready.clear()
        begun = time.monotonic()
        self.process = subprocess.Popen(
            ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", RAVELIN, "daemon", "--state", f"{self.place}/state"],
            env=self.environment,
            preexec_fn=give,
            close_fds=False,
            stdout=open(f"{self.place}/log", "a"),
            stderr=subprocess.STDOUT,
        )
        assert self.ready.wait(60), f"{self.name} is not ready"
        return (self.ready_at - begun) * 1000

    def stop(self, how):
        self.process.send_signal(how)
        self.process.wait()
        # What it has said last is heard.
        time.sleep(0.2)

    def set_up(self):
        self.start()
        drives = [f"{self.place}/drive{number}" for number in range(3)]
        for drive in drives:
            with open(drive, "w") as file:
                file.truncate(200 << 20)
        self.ravelin("pool", "create", self.name, "raid5", *drives)
        for number in range(self.volumes):
            volume = f"{self.name}/v{number}"
            self.ravelin("volume", "create", volume, "--size", "16M")
            self.ravelin("volume", "attach", volume, "--loop", "--fuse", f"{self.place}/{number}.img")

    def end(self):
        self.ravelin("pool", "export", "--force", self.name)
        self.stop(signal.SIGTERM)


# The daemon asks whether it is to be restarted.
os.mkdir(f"{BASE}/bin")
with open(f"{BASE}/bin/systemctl", "w") as file:
    file.write("#!/bin/sh\necho 7 ravelin.service restart running\n")
os.chmod(f"{BASE}/bin/systemctl", 0o755)
ways = [
    (Daemon("kept", True, 4), signal.SIGTERM),
    (Daemon("killed", True, 4), signal.SIGKILL),
    (Daemon("plain", False, 4), signal.SIGTERM),
    (Daemon("none", True, 0), signal.SIGTERM),
]
times = {daemon.name: [] for daemon, _ in ways}
for daemon, _ in ways:
    daemon.set_up()
for number in range(ROUNDS):
    for daemon, how in ways if number % 2 else ways[::-1]:
        daemon.stop(how)
        times[daemon.name].append(daemon.start())
load = open("/proc/loadavg").read().split()[:3]
print(f"load {' '.join(load)}, {os.cpu_count()} CPUs, {ROUNDS} rounds\n")
print("| start | median | least | most | descriptors kept |\n| --- | --- | --- | --- | --- |")
for daemon, _ in ways:
    of = times[daemon.name]
    print(f"| {daemon.name} | {statistics.median(of):.0f} ms | {min(of):.0f} ms | {max(of):.0f} ms | {len(daemon.kept)} |")
for daemon, _ in ways:
    daemon.end()
shutil.rmtree(BASE)
