"""A sandbox's filter refuses one system call after the other.  The program still gets the answers
of CUDA that it gets without the library, and nothing hangs."""

from host import *


@unittest.skipIf(SANITIZED, "sanitizers make system calls of their own")
class Refused(HostTest):
    def lines(self, when, preload, conf=None):
        more = {} if preload else {"LD_PRELOAD": None}
        _, out, _ = self.run_program(program("refused"), when, env=self.environment(conf, **more))
        return out.splitlines()

    def compare(self, when):
        plain = self.lines(when, False)
        self.assertGreater(len(plain), 100)
        self.assertIn("membarrier EPERM: answered 32", plain)
        for conf in ("dump_signal:USR2", "dump:none,control:true,expandable_segments:true"):
            with self.subTest(conf=conf):
                self.assertEqual(self.lines(when, True, conf), plain)

    def test_before_cuda_is_used(self):
        self.compare("early")

    def test_later(self):
        self.compare("later")


if __name__ == "__main__":
    unittest.main()
