#!/usr/bin/env python3
"""Checks the packages of `cpack`: they are complete, reproducible and clean, and work without other software.

usage: package.py BUILD SOURCE CXX     run in an empty folder of the test

If CXX is empty, the test builds no C++ program against the package."""
import filecmp
import functools
import os
import re
import shutil
import subprocess
import sys
import unittest

import needs

BUILD, SOURCE, CXX = sys.argv[1:4]
KINDS = "DEB;TXZ" if shutil.which("dpkg-deb") else "TXZ"
HERE = os.path.dirname(os.path.abspath(__file__))


def run(*words, status=0, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=400, **options)
    if done.returncode != status:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@functools.cache
def packed(folder, mask, *options, kinds=KINDS):
    """Packs the build folder with cpack. Returns {end of the name: path} of the packages."""
    shutil.rmtree(folder, ignore_errors=True)
    run("cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-G", kinds, "-B", folder,
        *options, umask=mask)
    return {name.rsplit(".", 1)[1]: os.path.abspath(os.path.join(folder, name))
            for name in os.listdir(folder) if name.endswith((".deb", ".xz"))}


def files(top):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                yield path


def libraries(path):
    """Yields the file names that the loader opens for a program."""
    for line in run("ldd", path).splitlines():
        for word in line.split():
            if word.startswith("/"):
                yield word


class Package:
    """Tests of both kinds of packages. `usr` is the prefix in the unpacked package."""

    def test_same_again(self):
        """A package does not depend on the umask, except for the modes of a .deb's three parts, which CPack writes."""
        again = packed("packed2", 0o077)[self.kind]
        self.assertEqual(self.content(self.file), self.content(again))

    def test_no_place_of_the_builder(self):
        names = [BUILD.encode(), SOURCE.encode(), os.getcwd().encode()]
        found = 0
        for path in files(self.top):
            with open(path, "rb") as file:
                content = file.read()
            found += 1
            self.assertFalse([name for name in names if name in content], path)
        self.assertGreater(found, 30)

    def test_stripped(self):
        count = 0
        for path in files(self.top):
            with open(path, "rb") as file:
                if file.read(4) != b"\x7fELF":
                    continue
            count += 1
            self.assertNotIn(".debug_", run("readelf", "-SW", path), path)
            # A package needs only libc and libraries that it has itself.
            for line in run("readelf", "-dW", path).splitlines():
                if "(NEEDED)" in line:
                    self.assertRegex(line, r"\[(libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|libm\.so\.6|ld-linux.*|libaccelcache"
                                           r"\.so\.\d+|libcuda\.so\.1|libcudart\.so\.13)\]", path)
            self.assertNotRegex(path, "bench|accelcache-dev")
        self.assertGreater(count, 5)

    def test_glibc(self):
        of = {path: needs.glibc_of(path) for path in needs.elves(self.top)}
        self.assertGreater(len(of), 5)
        self.assertFalse({path: need for path, need in of.items() if need > (2, 28)})

    def test_modes(self):
        for path in files(self.top):
            runs = os.path.dirname(path).endswith(("/bin", "/libexec/accelcache"))
            self.assertEqual(os.stat(path).st_mode & 0o7777, 0o755 if runs else 0o644, path)

    def test_runs(self):
        """The environment is empty, and all of the library, the device and the program come from the package."""
        place = os.path.abspath("run-" + self.kind)
        os.makedirs(place, exist_ok=True)
        command = os.path.join(self.usr, "bin/accelcache")
        out = run(command, "run", "--sim", "--dump", "d.json", "--",
                  os.path.join(self.usr, "bin/accelcache-demo"), "--iterations", "20", cwd=place,
                  env={"PATH": "/nowhere", "ACCEL_LIVE_DIR": place})
        self.assertTrue(out)
        shown = run(command, "stat", "d.json", cwd=place, env={})
        self.assertRegex(shown, r"from cache +[1-9]")

    def test_bare_root(self):
        """The root has only the package and the libraries that the loader needs."""
        root = os.path.abspath("root-" + self.kind)
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.usr, os.path.join(root, "usr"), symlinks=True)
        for program in ("accelcache", "accelcache-demo"):
            for library in libraries(os.path.join(self.usr, "bin", program)):
                os.makedirs(root + os.path.dirname(library), exist_ok=True)
                shutil.copy(library, root + library)
        for folder in ("proc", "tmp", "dev/shm"):
            os.makedirs(os.path.join(root, folder))
        script = ('mount --rbind /proc "$0/proc" && exec chroot "$0" /usr/bin/accelcache run --sim '
                  '--dump /tmp/d.json -- /usr/bin/accelcache-demo --iterations 20')
        inside = ["unshare", "--user", "--map-root-user", "--mount"]
        if not shutil.which("unshare") or \
                subprocess.run([*inside, "sh", "-c", 'mount --rbind /proc "$0/proc"', root],
                               stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no namespaces here")
        run(*inside, "sh", "-c", script, root, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        shown = run(os.path.join(self.usr, "bin/accelcache"), "stat", root + "/tmp/d.json", env={})
        self.assertRegex(shown, r"from cache +[1-9]")


class Deb(Package, unittest.TestCase):
    kind = "deb"
    OTHER = "Some Cluster <admin@example.net>"

    @staticmethod
    def content(path):
        return [subprocess.run(["dpkg-deb", option, path], stdout=subprocess.PIPE,
                               check=True).stdout for option in ("--ctrl-tarfile",
                                                                 "--fsys-tarfile")]

    @classmethod
    def setUpClass(cls):
        if not shutil.which("dpkg-deb"):
            raise unittest.SkipTest("no dpkg here")
        cls.file = packed("packed1", 0o022)[cls.kind]
        cls.top = os.path.abspath("deb")
        cls.usr = os.path.join(cls.top, "usr")
        shutil.rmtree(cls.top, ignore_errors=True)
        run("dpkg-deb", "-x", cls.file, cls.top)

    def test_needs_libc_alone(self):
        self.assertEqual(run("dpkg-deb", "-f", self.file, "Depends"), "libc6 (>= 2.28)\n")

    def test_documents(self):
        doc = os.path.join(self.usr, "share/doc/accelcache")
        self.assertEqual(set(os.listdir(doc)) & {"copyright", "changelog.gz",
                                                 "changelog.Debian.gz", "LICENSE"},
                         {"copyright", "changelog.gz", "changelog.Debian.gz"})
        version = run("dpkg-deb", "-f", self.file, "Version").strip()
        newest = run("zcat", os.path.join(doc, "changelog.Debian.gz")).split("\n")[0]
        self.assertTrue(newest.startswith(f"accelcache ({version}) "), newest)

    def test_maintainer(self):
        """The package and its changelog name the maintainer that the build was given."""
        with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
            contact, = re.findall(r"^CPACK_PACKAGE_CONTACT:\w+=(.*)$", file.read(), re.M)
        again = packed("packed3", 0o022, "-D", f"CPACK_PACKAGE_CONTACT={self.OTHER}",
                       kinds="DEB")["deb"]
        for package, name in ((self.file, contact), (again, self.OTHER)):
            self.assertEqual(run("dpkg-deb", "-f", package, "Maintainer"), name + "\n")
            run("dpkg-deb", "-x", package, "maintained")
            self.assertIn(f" -- {name}  ", run(
                "zcat", "maintained/usr/share/doc/accelcache/changelog.Debian.gz"))

    def test_lintian(self):
        if not shutil.which("lintian"):
            self.skipTest("no lintian here")
        run("lintian", "--allow-root", "--no-cfg", "--fail-on", "error,warning", self.file)


class Tarball(Package, unittest.TestCase):
    kind = "xz"

    @staticmethod
    def content(path):
        with open(path, "rb") as file:
            return file.read()

    @classmethod
    def setUpClass(cls):
        cls.file = packed("packed1", 0o022)[cls.kind]
        # The tarball may be unpacked in a folder of any name.
        cls.top = os.path.abspath("unpacked here")
        shutil.rmtree(cls.top, ignore_errors=True)
        os.mkdir(cls.top)
        run("tar", "xpf", cls.file, "-C", cls.top) # -p ignores the umask
        one, = os.listdir(cls.top)
        # LD_PRELOAD allows no blanks in a path. The command reports this.
        done = subprocess.run([os.path.join(cls.top, one, "bin/accelcache"), "run", "--sim", "--",
                               "true"], stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1 and "blank" in done.stderr, done
        cls.usr = os.path.abspath("unpacked")
        shutil.rmtree(cls.usr, ignore_errors=True)
        shutil.move(os.path.join(cls.top, one), cls.usr)
        os.rmdir(cls.top)
        cls.top = cls.usr

    def test_licence(self):
        self.assertTrue(filecmp.cmp(os.path.join(SOURCE, "LICENSE"), os.path.join(
            self.usr, "share/doc/accelcache/LICENSE"), shallow=False))

    def test_soname(self):
        """libaccelcache.so links to .so.N, which links to .so.VERSION. Programs need .so.N."""
        library = os.path.join(self.usr, "lib/libaccelcache.so")
        names = [library]
        while os.path.islink(names[-1]):
            names.append(os.path.join(os.path.dirname(library), os.readlink(names[-1])))
        self.assertEqual(len(names), 3, names)
        soname = os.path.basename(names[1])
        self.assertRegex(soname, r"^libaccelcache\.so\.\d+$")
        self.assertIn(f"[{soname}]", run("readelf", "-dW", library))

    @unittest.skipUnless(CXX, "no C++ compiler")
    def test_cxx_program(self):
        """pkg-config finds the library in the folder of the unpacked tarball."""
        search = {**os.environ, "PKG_CONFIG_PATH": os.path.join(self.usr, "lib/pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "accelcache", env=search).split()
        for standard in ("c++11", "c++20"):
            run(CXX, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o",
                "cxx-consumer", os.path.join(HERE, "consumer/consumer.cpp"), *flags)
            out = run("./cxx-consumer", env={"LD_LIBRARY_PATH": os.path.join(self.usr, "lib")})
            self.assertEqual(out, "initialized: 0\n")


if __name__ == "__main__":
    del sys.argv[1:]
    unittest.main(verbosity=2)
