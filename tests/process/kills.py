"""Processes are killed by SIGKILL at any moment: the figures of all of them can be read."""

import random
import time

from host import *

KILLS, TOGETHER = (20 if SANITIZED or EMULATED else 200), 4
CONFS = ("dump:none", "dump:none,expandable_segments:true", "dump:none,guard:1/50,control:true",
         "dump:none,trace:kills-%p.trace")


class Kills(HostTest):
    def judge(self, pid):
        """Returns the document of a killed process."""
        shown = json.loads(self.stat("--json", "--remove", str(pid))[0])
        self.assertEqual((shown["process"]["pid"], shown["reason"]), (pid, "killed"))
        for device in shown["devices"]:
            for name, stat in device["stats"].items():
                for pool in stat.values() if isinstance(stat, dict) and "all" in stat else [stat]:
                    for figure in pool.values() if isinstance(pool, dict) else [pool]:
                        self.assertGreaterEqual(figure, -1, name)
                        self.assertLess(figure, 1 << 62, name)
        return shown

    def test_at_work(self):
        """All pages exist, with the work that was done."""
        rolls = random.Random(1)
        for batch in range(KILLS // TOGETHER):
            conf = CONFS[batch % len(CONFS)]
            children = [self.start(program("kills"), env=self.environment(conf, ACCEL_SIM=None))
                        for _ in range(TOGETHER)]
            for child in children:
                self.assertEqual(child.stdout.readline(), "ready\n")
            for child in children:
                time.sleep(rolls.random() / 100)
                child.kill()
                child.wait()
            for child in children:
                with self.subTest(pid=child.pid, conf=conf):
                    shown = self.judge(child.pid)
                    self.assertEqual(len(shown["devices"]), 1)
                self.end(child)
        self.assertEqual(self.pages(), [])

    def test_after_its_work(self):
        """In a page, a freed block is inactive after the program waited for its work."""
        child = self.start(program("kills"), "idle", env=self.environment("dump:none"))
        self.assertEqual(child.stdout.readline(), "ready\n")
        running = json.loads(self.stat("--json", str(child.pid))[0])
        child.kill()
        child.wait()
        for shown in running, self.judge(child.pid):
            stats = shown["devices"][0]["stats"]
            self.assertGreater(stats["active"]["all"]["peak"], 0)
            for name in "allocation", "active", "active_bytes", "requested_bytes":
                for pool in stats[name].values():
                    self.assertEqual(pool["current"], 0, name)
        self.end(child)

    def test_at_their_start(self):
        """The page can be read, is absent, or `accelcache stat` calls it incomplete."""
        rolls = random.Random(2)
        for i in range(KILLS // 8):
            child = self.start(program("kills"), env=self.environment(CONFS[i % len(CONFS)]))
            time.sleep(rolls.random() / 50)
            child.kill()
            child.wait()
            self.end(child)
            if not os.path.exists(self.page(child.pid)):
                continue
            env = self.environment(LD_PRELOAD=None)
            done = subprocess.run([COMMAND, "stat", "--json", str(child.pid)], env=env, text=True,
                                  capture_output=True, timeout=LIMIT, check=False)
            if done.returncode:
                self.assertIn("cut short, written by another version of accelcache, or not yet",
                              done.stderr)
            else:
                self.judge(child.pid)


if __name__ == "__main__":
    unittest.main()
