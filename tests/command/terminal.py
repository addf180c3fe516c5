"""A real terminal for tests: tmux, with a window of a size that the test chooses."""

import os
import shlex
import shutil
import subprocess
import tempfile
import time

PRESENT = shutil.which("tmux") is not None


class Terminal:
    """A command in its own terminal; a context manager."""

    def __init__(self, columns, rows, command, environment, folder):
        self.size, self.command = (columns, rows), command
        self.environment = {**environment, "TERM": "screen", "LC_ALL": "C.UTF-8"}
        self.folder = folder
        self.place = tempfile.mkdtemp(prefix="accelcache-terminal-")
        self.over = os.path.join(self.place, "over")

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-S", os.path.join(self.place, "socket"), "-f", "/dev/null",
                               *arguments], env=self.environment, cwd=self.folder, timeout=120,
                              stdout=subprocess.PIPE, text=True, check=True).stdout

    def __enter__(self):
        # The shell stays after the command has ended, and leaves the screen unchanged.
        script = f"trap : INT; {shlex.join(self.command)}; echo $? >{self.over}; exec sleep 600"
        self.tmux("new-session", "-d", "-x", str(self.size[0]), "-y", str(self.size[1]),
                  "sh", "-c", script, ";", "set", "-g", "status", "off")
        self.tmux("resize-window", "-x", str(self.size[0]), "-y", str(self.size[1]))
        return self

    def __exit__(self, *exception):
        self.tmux("kill-server")
        shutil.rmtree(self.place)

    def wait(self, seconds=200):
        """Waits until the command has ended, and returns its status."""
        self.until(lambda: os.path.exists(self.over) and os.path.getsize(self.over), seconds)
        with open(self.over, encoding="ascii") as file:
            return int(file.read())

    def until(self, condition, seconds=80):
        limit = time.monotonic() + seconds
        while not (result := condition()):
            if time.monotonic() > limit:
                raise TimeoutError("the terminal shows\n" + "\n".join(self.lines()))
            time.sleep(0.05)
        return result

    def lines(self):
        """Returns the lines in the window. A line that the terminal wrapped counts as one."""
        return [line.rstrip() for line in self.tmux("capture-pane", "-p", "-J").split("\n")[:-1]]

    def scrolled(self):
        """Returns the number of lines that have scrolled out at the top."""
        return int(self.tmux("display-message", "-p", "#{history_size}"))

    def press(self, *keys):
        self.tmux("send-keys", *keys)
