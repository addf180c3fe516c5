#!/usr/bin/env python3
"""Checks the recipes. Some run with stand-ins for their launchers; the tools that read the others check them.

usage: recipes.py BUILD SOURCE     run in an empty folder of the test"""
import glob
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import types
import unittest

BUILD, SOURCE = sys.argv[1:3]
RECIPES = os.path.join(SOURCE, "tools/package/recipes")
DEMO = os.path.join(BUILD, "bin/demo")

# Starts two tasks or ranks, as the launcher does.
SRUN = """#!/bin/sh
case $1 in --ntasks-per-node=1) shift; exec "$@" ;; esac
case ${LD_PRELOAD-} in *accelcache*) exit 91 ;; esac
for rank in 0 1; do SLURM_PROCID=$rank "$@" || exit; done
"""
# Stand-in for a launcher that gives variables of `-x` and `-genv` to the ranks only.
MPI = """#!%s
import os, subprocess, sys
if sys.argv[1:] == ["--version"]:
    print("%s")
    sys.exit(0)
words = sys.argv[1:]
assert words[:2] == ["-n", "2"], words
words = words[2:]
assert "accelcache" not in os.environ.get("LD_PRELOAD", "")
given = {}
while words[0] == "%s":
    if words[0] == "-x":
        name, value = words[1].split("=", 1)
        words = words[2:]
    else:
        name, value = words[1:3]
        words = words[3:]
    given[name] = value
for rank in "01":
    subprocess.run(words, check=True, env={**os.environ, **given, "%s": rank})
"""




def is_open_mpi():
    if not shutil.which("mpirun"):
        return False
    return "Open MPI" in subprocess.run(["mpirun", "--version"], text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, check=False).stdout


OPEN_MPI = is_open_mpi()
LMOD = "/usr/share/lmod/lmod/init/bash"


def without(given, got):
    """Returns the entries of `given` that `got` lacks or that differ in `got`."""
    if isinstance(given, dict):
        return [f"{key}.{rest}" for key, value in given.items()
                for rest in (without(value, got[key]) if isinstance(got, dict) and key in got else ["absent"])]
    if isinstance(given, list):
        if not isinstance(got, list) or len(got) != len(given):
            return ["another list"]
        return [f"{i}.{rest}" for i, value in enumerate(given) for rest in without(value, got[i])]
    return [] if str(given) == str(got) else [f"{given!r} is {got!r}"]


class Recipes(unittest.TestCase):
    root = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.folder)
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        os.symlink(os.path.join(BUILD, "bin/accelcache"), os.path.join(self.bin, "accelcache"))
        self.environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": self.folder,
                            "ACCEL_LIVE_DIR": self.folder,
                            "LD_LIBRARY_PATH": os.path.join(BUILD, "sim")}

    def stand_in(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def run_recipe(self, name, *words, **variables):
        done = subprocess.run([os.path.join(RECIPES, name), *words], cwd=self.folder, text=True,
                              env={**self.environment, **variables}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, timeout=300)
        self.assertEqual(done.returncode, 0, (done.stdout, done.stderr))
        return done.stdout

    def ranks(self, folder):
        """Returns the ranks that have statistics in the folder."""
        found = sorted(glob.glob(os.path.join(self.folder, folder, "*.json")))
        return [re.search(r"-(\w+)\.json$", name).group(1) for name in found]

    def test_mpirun(self):
        for version, option, rank in (("mpirun (Open MPI) 4.1.4", "-x", "OMPI_COMM_WORLD_RANK"),
                                      ("HYDRA build details", "-genv", "PMI_RANK")):
            with self.subTest(version):
                self.stand_in("mpirun", MPI % (sys.executable, version, option, rank))
                out = self.run_recipe("mpirun.sh", "2", DEMO, "--iterations", "20", DUMPS=option[1:],
                                      ACCEL_ALLOC_CONF="memory_limit:8G")
                self.assertEqual(self.ranks(option[1:]), ["0", "1"])
                self.assertIn("accelcache-", out)

    @unittest.skipUnless(OPEN_MPI, "needs Open MPI")
    def test_open_mpi(self):
        """The recipe works with the real launcher, which runs without the library."""
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        out = self.run_recipe("mpirun.sh", "2", DEMO, "--iterations", "20", **root)
        self.assertEqual(self.ranks("accelcache-dumps"), ["0", "1"])
        self.assertEqual(out.count("wrong results         0"), 2)

    def test_slurm(self):
        self.stand_in("srun", SRUN)
        out = self.run_recipe("slurm.sh", DEMO, "--iterations", "20", SLURM_JOB_ID="17",
                              SLURM_SUBMIT_DIR=self.folder)
        self.assertIn("median", out)  # the summary has a median
        self.assertEqual(self.ranks("accelcache-17"), ["0", "1"])

    def test_slurm_keeps_the_status(self):
        self.stand_in("srun", SRUN)
        done = subprocess.run([os.path.join(RECIPES, "slurm.sh"), "sh", "-c", "exit 5"],
                              cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False, timeout=300)
        self.assertEqual(done.returncode, 5)

    def test_task_prolog(self):
        """Slurm takes each line literally: it expands no quotes or variables."""
        self.assertEqual(self.run_recipe("slurm-task-prolog.sh"), "")
        out = self.run_recipe("slurm-task-prolog.sh", ACCELCACHE="1", SLURM_SUBMIT_DIR="/a b")
        lines = dict(line.split("=", 1) for line in out.splitlines())
        self.assertEqual(lines["export LD_PRELOAD"], os.path.join(os.path.realpath(BUILD),
                                                                  "lib/libaccelcache.so"))
        self.assertEqual(lines["export ACCEL_ALLOC_CONF"], "dump:/a b/accelcache-%h-%r-%p.json")

    def await_device(self, pid):
        """Waits until the process uses a device. Its page exists earlier, with no device."""
        deadline = time.monotonic() + 60
        devices = 0
        while not devices:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
            lines = subprocess.run([os.path.join(self.bin, "accelcache"), "ps", "--no-header"], text=True,
                                   env=self.environment, stdout=subprocess.PIPE, check=False).stdout
            devices = sum(int(line.split()[3]) for line in lines.splitlines() if line.split()[0] == str(pid))

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_epilog(self):
        """The task was killed. In this test, root is the user of the job."""
        os.chmod(self.folder, 0o755)
        task = subprocess.Popen([os.path.join(BUILD, "bin/accelcache"), "run", "--", DEMO,
                                 "--iterations", "100000000"], env=self.environment,
                                cwd=self.folder, stdout=subprocess.DEVNULL)
        try:
            self.await_device(task.pid)
        finally:
            task.kill()
            task.wait()
        self.run_recipe("slurm-epilog.sh", SLURM_JOB_UID="0", SLURM_JOB_ID="17",
                        ACCELCACHE_EPILOG_DIR=os.path.join(self.folder, "log"))
        file, = glob.glob(os.path.join(self.folder, "log", "job-17-*.json"))
        with open(file, encoding="utf-8") as text:
            documents = json.load(text)
        self.assertEqual([document["pid"] for document in documents], [task.pid])
        self.run_recipe("slurm-epilog.sh")  # by hand, without a job
        self.run_recipe("slurm-epilog.sh", SLURM_JOB_UID="12345")  # a user without CUDA programs

    def test_defaults(self):
        out = subprocess.run([os.path.join(self.bin, "accelcache"), "config", "--json"], text=True,
                             stdout=subprocess.PIPE, check=True, env={
                                 **self.environment,
                                 "ACCEL_CONF_FILE": os.path.join(RECIPES, "accelcache.conf")}).stdout
        sources = {row["key"] for row in json.loads(out)["keys"] if row["source"]}
        self.assertEqual(sources, {"idle_trim_ms", "dump"})

    # Stand-in for cmake: it configures in an empty folder, skips the build, and installs the earlier build.
    CMAKE = """#!/bin/sh
printf '%%s\\n' "$*" >>"%s"
case $1 in
-S) exec "%s" "$@" ;;
--build) exit 0 ;;
--install) exec "%s" --install "%s" --prefix "$PREFIX" ;;
esac
exit 93
"""

    def test_conda(self):
        calls, prefix = os.path.join(self.folder, "calls"), os.path.join(self.folder, "prefix")
        cmake = shutil.which("cmake")
        self.stand_in("cmake", self.CMAKE % (calls, cmake, cmake, BUILD))
        self.run_recipe("conda/build.sh", SRC_DIR=SOURCE, PREFIX=prefix)
        with open(calls, encoding="utf-8") as file:
            self.assertIn("--target product", file.read())
        # recipe.yaml has the version, and commands that work with the result.
        with open(os.path.join(RECIPES, "conda/recipe.yaml"), encoding="utf-8") as file:
            recipe = file.read()
        with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
            version = re.search(r"CMAKE_PROJECT_VERSION:STATIC=(.*)", file.read()).group(1)
        self.assertIn(f'version: "{version}"', recipe)
        commands = re.findall(r"(?m)^ +- (accelcache .*)$", recipe)
        self.assertEqual(len(commands), 2)
        for command in commands:
            subprocess.run(["sh", "-c", command], check=True, stdout=subprocess.DEVNULL,
                           cwd=self.folder, timeout=300,
                           env={"PATH": prefix + "/bin:/usr/bin:/bin", "ACCEL_LIVE_DIR": self.folder})

    def test_spack(self):
        """The test has stand-ins for Spack's names. CMake must know the options of the recipe."""
        given, told = {}, {}
        def note(name):
            return lambda *words, **more: told.setdefault(name, []).append(words)
        class CMakePackage:
            prefix = types.SimpleNamespace(lib=types.SimpleNamespace(
                join=lambda name: "/prefix/lib/" + name))
            @staticmethod
            def define(name, value):
                given[name] = value
                return f"-D{name}={'ON' if value else 'OFF'}"
        spack = types.ModuleType("spack.package")
        spack.CMakePackage = CMakePackage
        for name in ("license", "version", "depends_on", "conflicts"):
            setattr(spack, name, note(name))
        sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), spack
        names = runpy.run_path(os.path.join(RECIPES, "spack/packages/accelcache/package.py"))
        package = names["Accelcache"]()
        options = package.cmake_args()
        package.setup_run_environment(types.SimpleNamespace(set=note("env")))
        self.assertEqual(told["env"], [("ACCELCACHE_LIBRARY", "/prefix/lib/libaccelcache.so")])
        done = subprocess.run(["cmake", "-S", SOURCE, "-B", os.path.join(self.folder, "spack"),
                               *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("not used by the project", done.stdout)
        self.assertEqual(set(given), {"BUILD_TESTING", "AC_SHARED_DEPENDENCIES"})

    def test_kubernetes(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml here")
        with open(os.path.join(RECIPES, "kubernetes.yaml"), encoding="utf-8") as file:
            pod = yaml.safe_load(file)
        self.assertEqual((pod["apiVersion"], pod["kind"]), ("v1", "Pod"))
        spec = pod["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        program, = spec["containers"]
        before, = spec["initContainers"]
        for container in (program, before):
            for mount in container["volumeMounts"]:
                self.assertIn(mount["name"], volumes)
        # The program loads the file that the first container writes.
        env = {row["name"]: row["value"] for row in program["env"]}
        self.assertEqual(before["command"][-1], env["LD_PRELOAD"])
        where = {mount["mountPath"] for mount in before["volumeMounts"]}
        self.assertIn(os.path.dirname(env["LD_PRELOAD"]), where)
        self.assertIn(os.path.dirname(env["LD_PRELOAD"]),
                      {mount["mountPath"] for mount in program["volumeMounts"]})
        self.check_conf(env["ACCEL_ALLOC_CONF"])
        if not shutil.which("kubectl"):
            return
        # If kubectl reads the pod into Kubernetes' types, no entry is lost.
        out = subprocess.run(["kubectl", "set", "image", "--local", "--dry-run=client", "-o", "yaml", "-f",
                              os.path.join(RECIPES, "kubernetes.yaml"),
                              "program=another"], text=True, check=True, timeout=60,
                             stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"],
                                                          "HOME": self.folder}).stdout
        program["image"] = "another"
        self.assertEqual(without(pod, yaml.safe_load(out)), [])

    def test_paths(self):
        """A package puts each file of /usr at the path that recipes for containers and services name."""
        root = self.installed()
        for recipe in ("Dockerfile", "kubernetes.yaml", "systemd.conf"):
            with open(os.path.join(RECIPES, recipe), encoding="utf-8") as file:
                named = re.findall(r"/usr/[\w./-]+\.so[.\d]*", file.read())
            self.assertTrue(named, recipe)
            for path in named:
                self.assertTrue(os.path.exists(root + path), (recipe, path))

    def test_dockerfile(self):
        """COPY takes an argument, a shell can parse RUN, and the command that starts knows its argument."""
        with open(os.path.join(RECIPES, "Dockerfile"), encoding="utf-8") as file:
            text = re.sub(r"(?m)^#.*\n", "", file.read()).replace("\\\n", "")
        steps = [line.split(None, 1) for line in text.splitlines() if line]
        self.assertEqual([word for word, _ in steps],
                         ["ARG", "FROM", "ARG", "COPY", "RUN", "ENTRYPOINT", "CMD"])
        told = dict(steps)
        self.assertEqual(told["FROM"], "${BASE}")
        source, target = told["COPY"].split()
        self.assertEqual(source, "${" + told["ARG"] + "}")
        self.assertIn(target, told["RUN"])
        subprocess.run(["sh", "-n", "-c", told["RUN"]], check=True)
        command = json.loads(told["ENTRYPOINT"]) + json.loads(told["CMD"])
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=self.environment)

    def check_conf(self, conf):
        subprocess.run([os.path.join(self.bin, "accelcache"), "config", conf], check=True,
                       stdout=subprocess.DEVNULL, env=self.environment)

    def test_systemd(self):
        unit = os.path.join(self.folder, "units")
        os.makedirs(os.path.join(unit, "example.service.d"))
        with open(os.path.join(unit, "example.service"), "w", encoding="utf-8") as file:
            file.write("[Service]\nExecStart=/bin/true\n")
        drop_in = shutil.copy(os.path.join(RECIPES, "systemd.conf"),
                              os.path.join(unit, "example.service.d", "accelcache.conf"))
        with open(drop_in, encoding="utf-8") as file:
            conf = re.search(r"ACCEL_ALLOC_CONF=(.*)", file.read()).group(1)
        self.check_conf(conf.replace("%%", "%"))
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze here")
        done = subprocess.run(["systemd-analyze", "verify", "--man=no",
                               os.path.join(unit, "example.service")], text=True, check=False,
                              env={**self.environment, "SYSTEMD_UNIT_PATH": unit + ":"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        ours = [line for line in done.stdout.splitlines() if "accelcache" in line]
        self.assertEqual(ours, [])

    @unittest.skipUnless(shutil.which("lua5.4") or shutil.which("lua"), "needs lua")
    def test_lmod(self):
        """The test has stand-ins for Lmod's functions. Each path that the recipe sets must exist."""
        prefix = os.path.join(self.installed(), "usr")
        words = "\n".join(f"function {name}(a, b) print('{name}', a, b) end"
                          for name in ("help", "whatis", "prepend_path", "setenv"))
        words += "\nfunction pathJoin(a, b) return a .. '/' .. b end\n"
        with open(os.path.join(RECIPES, "lmod.lua"), encoding="utf-8") as file:
            words += file.read()
        out = subprocess.run([shutil.which("lua5.4") or shutil.which("lua"), "-"], input=words,
                             text=True, check=True, stdout=subprocess.PIPE,
                             env={**self.environment, "ACCELCACHE_PREFIX": prefix}).stdout
        rows = [line.split("\t") for line in out.splitlines() if line.startswith(("prep", "setenv"))]
        self.assertGreater(len(rows), 4)
        for _, name, path in rows:
            self.assertTrue(os.path.exists(path), (name, path))

    @unittest.skipUnless(os.path.exists(LMOD), "needs Lmod")
    def test_lmod_itself(self):
        prefix = os.path.join(self.installed(), "usr")
        os.makedirs(os.path.join(self.folder, "modules/accelcache"))
        shutil.copy(os.path.join(RECIPES, "lmod.lua"),
                    os.path.join(self.folder, "modules/accelcache/0.1.0.lua"))
        words = f""". {LMOD}
            module load accelcache && command -v accelcache && echo "$ACCELCACHE_LIBRARY"
            module unload accelcache && echo "${{ACCELCACHE_LIBRARY-unset}}" """
        out = subprocess.run(["bash", "-c", words], text=True, check=True, timeout=60,
                             stdout=subprocess.PIPE, env={
                                 "PATH": "/usr/bin:/bin", "HOME": self.folder, "ACCELCACHE_PREFIX": prefix,
                                 "MODULEPATH": os.path.join(self.folder, "modules")}).stdout
        self.assertEqual(out.splitlines(), [prefix + "/bin/accelcache",
                                            prefix + "/lib/libaccelcache.so", "unset"])

    @classmethod
    def installed(cls):
        """Returns a folder with an installation in usr/, which all tests share."""
        if not cls.root:
            cls.root = tempfile.mkdtemp(dir=os.getcwd())
            cls.addClassCleanup(shutil.rmtree, cls.root)
            subprocess.run(["cmake", "--install", BUILD, "--prefix", "/usr"], check=True, timeout=300,
                           env={**os.environ, "DESTDIR": cls.root}, stdout=subprocess.DEVNULL)
        return cls.root

    @unittest.skipUnless(shutil.which("shellcheck"), "needs shellcheck")
    def test_shellcheck(self):
        scripts = glob.glob(os.path.join(RECIPES, "*.sh"))
        self.assertGreater(len(scripts), 2)
        subprocess.run(["shellcheck", *scripts], check=True, timeout=300)

    def test_all_listed(self):
        with open(os.path.join(RECIPES, "README.md"), encoding="utf-8") as file:
            listed = re.findall(r"(?m)^\| `([^`]+)`", file.read())
        self.assertEqual(sorted(listed + ["README.md"]), sorted(os.listdir(RECIPES)))


if __name__ == "__main__":
    del sys.argv[1:]
    unittest.main(verbosity=2)
