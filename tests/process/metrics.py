"""dump_format:prometheus: writes the figures repeatedly as metrics, with the names of `accelcache export`."""

import re
import shutil
import time

from host import *

LABELS = {"SLURM_JOB_ID": "77", "POD_NAME": "pod-1", "CONTAINER_NAME": "main", "OMPI_COMM_WORLD_RANK": "3"}


def names(text):
    return re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M)


class Metrics(HostTest):
    def hold(self, conf):
        child = self.start(program("guard"), "hold", "1000000", env=self.environment(conf, **LABELS))
        child.stdout.readline()
        return child

    def await_file(self, name, there=True):
        for _ in range(LIMIT * 100):
            if os.path.exists(os.path.join(self.work, name)) == there:
                return
            time.sleep(0.01)
        self.fail(f"{name} {'never came' if there else 'stays'}")

    def text(self, name, wanted=""):
        """Returns the file's text. Reads again until it matches `wanted`, because an early file may lack something."""
        for _ in range(LIMIT * 100):
            self.await_file(name)
            with open(os.path.join(self.work, name), encoding="utf-8") as file:
                text = file.read()
            if re.search(wanted, text):
                break
            time.sleep(0.01)
        return text

    def sample(self, text, name):
        return float(re.search(rf"^{name}{{.*}} (.*)$", text, re.M)[1])

    def test_interval(self):
        child = self.hold("dump_format:prometheus,dump_interval:0.1,control:true")
        text = self.text(f"accelcache-{child.pid}.prom", r'allocated_bytes{.*pool="all"} 1000448')
        env = self.environment(LD_PRELOAD=None)
        done = subprocess.run([COMMAND, "export", "-f", "prometheus", str(child.pid)], env=env,
                              text=True, capture_output=True, timeout=LIMIT, check=True)
        self.assertEqual(names(text), names(done.stdout))
        self.assertEqual(re.findall(r"^# HELP .*", text, re.M),
                         re.findall(r"^# HELP .*", done.stdout, re.M))
        # Outside, an emulated program has the emulator's name.
        for source, name in (text, "guard"), (done.stdout, "qemu-aarch64.*" if EMULATED else "guard"):
            labels = f'{{pid="{child.pid}",host="[^"]+",program="{name}",rank="3",job="77",pod="pod-1",' \
                     'container="main",device="0",pool="all"}'
            self.assertRegex(source, f"accelcache_allocated_bytes{labels} 1000448\\n")
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                     capture_output=True, timeout=LIMIT, check=False)
            self.assertEqual((checked.returncode, checked.stdout), (0, ""))
        before = os.stat(os.path.join(self.work, f"accelcache-{child.pid}.prom")).st_ino
        for _ in range(LIMIT * 100):
            if os.stat(os.path.join(self.work, f"accelcache-{child.pid}.prom")).st_ino != before:
                break
            time.sleep(0.01)
        else:
            self.fail("it was written once only")
        self.finish(child, stdin="q")
        self.assertEqual(self.dumps(), [])

    def test_changes_of_name_and_format(self):
        conf = "dump_format:prometheus,dump_interval:0.1,dump:now.prom,control:true"
        for change, left in (("dump:later.prom", []), ("dump:none", []),
                             ("dump_format:json,dump:now.json", ["now.json"])):
            with self.subTest(change=change):
                child = self.hold(conf)
                self.await_file("now.prom")
                subprocess.run([COMMAND, "ctl", str(child.pid), "set", change], check=True,
                               env=self.environment(LD_PRELOAD=None), stdout=subprocess.DEVNULL,
                               timeout=LIMIT)
                self.await_file("now.prom", there=False)
                self.finish(child, stdin="q")
                self.assertEqual(os.listdir(self.work), left)

    @unittest.skipIf(TSAN, "that sanitizer keeps signals back")
    def test_the_file_of_another_stays(self):
        child = self.hold("dump_format:prometheus,dump_interval:1000,dump:now.prom")
        child.send_signal(signal.SIGUSR2)
        self.await_file("now.prom")
        theirs = os.path.join(self.work, "theirs")
        with open(theirs, "w", encoding="utf-8") as file:
            file.write("of another process")
        os.rename(theirs, os.path.join(self.work, "now.prom"))
        self.finish(child, stdin="q")
        self.assertEqual(self.text("now.prom"), "of another process")

    def test_at_exit(self):
        child = self.hold("dump_format:prometheus,dump:%e.prom")
        self.assertEqual(self.dumps(), [])
        self.finish(child, stdin="q")
        self.assertEqual(self.dumps(), ["guard.prom"])
        text = self.text("guard.prom")
        self.assertEqual(self.sample(text, "accelcache_cached_frees_total"), 1)

    def test_figures_that_could_not_be_written(self):
        """The page stays, as the printed line says, until a change of the settings releases it."""
        for change, left in ((None, 1), ("dump:none", 0), ("dump:now.prom", 0)):
            with self.subTest(change=change):
                child = self.hold("dump_format:prometheus,dump_interval:0.1,dump:later/now.prom,control:true")
                line = child.stderr.readline()
                self.assertRegex(line, "cannot write the statistics to .*later/now.prom.*`accelcache stat PID` shows them")
                if change:
                    subprocess.run([COMMAND, "ctl", str(child.pid), "set", change], check=True,
                                   env=self.environment(LD_PRELOAD=None), stdout=subprocess.DEVNULL,
                                   timeout=LIMIT)
                if change == "dump:now.prom":
                    self.await_file("now.prom")
                    os.remove(os.path.join(self.work, "now.prom"))
                    self.await_file("now.prom") # written again: the first was noted
                self.finish(child, stdin="q")
                self.assertEqual(len(self.pages()), left)
                self.stat("--remove")

    def test_json_is_the_usual_one(self):
        child = self.hold(None)
        self.finish(child, stdin="q")
        self.the_dump(child.pid)

    def test_odd_labels(self):
        odd = {"POD_NAME": 'a"b\\c\nd\xff'.encode("latin-1"), "JOB_NAME": b"x" * 300}
        child = self.start(program("guard"), "hold", "1000",
                           env=self.environment("dump_format:prometheus,dump:odd.prom", **odd))
        child.stdout.readline()
        self.finish(child, stdin="q")
        text = self.text("odd.prom")
        self.assertIn(r'pod="a\"b\\c\\x0ad\\xff"', text)
        self.assertIn(f'job="{"x" * 251}"', text)


if __name__ == "__main__":
    unittest.main()
