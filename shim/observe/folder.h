/* Relative names in the configuration.  They refer to the folder in which the program was started, even
 * after the program changed its working folder (chdir, daemon). */
#ifndef AC_FOLDER_H
#define AC_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum { AC_FOLDER_PATH = 4096 + 512 }; /* room for every name that the kernel takes */

/* Stores the working folder.  Called from the constructor.  It makes at most three system calls, opens no
 * file and keeps errno. */
void ac_folder_start(void);

/* Writes `name`, relative to the start folder, to `path`.  The name stays unchanged while the program is in
 * that folder.  With `lasting` it becomes absolute, so that it stays right after a chdir.  If the start
 * folder has no name, the current folder is used.  Returns 0 or ENAMETOOLONG.  It allocates nothing, takes
 * no lock and is safe at exit. */
int ac_folder_resolve(const char *name, bool lasting, char *path, size_t size);

#endif
