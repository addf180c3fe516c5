"""With enabled:false the library creates nothing in the driver: no stream, no event, no record, no wait. It only
queries the driver for devices and contexts."""

from host import *

QUESTIONS = {"cuDriverGetVersion", "cuDeviceGetAttribute", "cuDeviceGetName", "cuDeviceGetUuid", "cuDeviceTotalMem_v2",
             "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetId", "cuStreamGetCtx", "cuStreamGetCaptureInfo_v2"}


class Disabled(HostTest):
    def calls(self, conf, preload):
        env = self.environment(conf)
        if not preload:
            env["LD_PRELOAD"] = env["LD_PRELOAD"].replace(LIBRARY, "")
        _, out, err = self.run_program(program("calls"), "all", env=env)
        self.assertEqual(err, "")
        return {name: int(count) for name, count in map(str.split, out.splitlines())}

    def test_nothing_of_its_own(self):
        plain = self.calls(None, preload=False)
        disabled = self.calls("enabled:false,dump:none", preload=True)
        more = {name for name in disabled if disabled[name] != plain.get(name, 0)}
        self.assertLessEqual(more, QUESTIONS)
        self.assertEqual(set(plain) - set(disabled), set())


if __name__ == "__main__":
    unittest.main()
