/* See folder.h. */
#include "observe/folder.h"

#include <string.h>

#include "observe/raw.h"
#include "observe/start.h"

/* The start folder.  A short name lies here; only a long one needs `long_text`, which is on another page. */
AC_START_DATA static struct {
    const char *name; /* NULL: it has none, or is not known */
    dev_t device;
    ino_t inode;
    char text[128];
} start;
static char long_text[4096];

/* Reads the name of the working folder.  Returns false if it has no absolute name. */
static bool present_name(char *text, size_t size, size_t *length) {
    long bytes = ac_raw_getcwd(text, size);
    *length = bytes > 0 ? (size_t)bytes - 1 : 0;
    return bytes > 1 && text[0] == '/';
}

AC_START void ac_folder_start(void) {
    struct stat st;
    size_t length;
    int saved = errno;
    if (ac_raw_stat(AT_FDCWD, ".", &st, 0) == 0) {
        start.device = st.st_dev;
        start.inode = st.st_ino;
        if (present_name(start.text, sizeof start.text, &length))
            start.name = start.text;
        else if (errno == ERANGE && present_name(long_text, sizeof long_text, &length))
            start.name = long_text;
    }
    errno = saved;
}

static bool is_still_there(void) {
    struct stat st;
    return ac_raw_stat(AT_FDCWD, ".", &st, 0) == 0 && st.st_dev == start.device &&
           st.st_ino == start.inode;
}

int ac_folder_resolve(const char *name, bool lasting, char *path, size_t size) {
    size_t used = 0, length = strlen(name);
    bool still_there = name[0] != '/' && (!start.name || is_still_there());
    if (name[0] != '/' && !still_there) {
        used = strlen(start.name);
        if (used >= size)
            return ENAMETOOLONG;
        memcpy(path, start.name, used);
    } else if (name[0] != '/' && lasting && !present_name(path, size, &used)) {
        used = 0;
    }
    if (used > 1) /* the root's name ends in its slash */
        path[used++] = '/';
    if (used > size || length >= size - used)
        return ENAMETOOLONG;
    memcpy(path + used, name, length + 1);
    return 0;
}
