/* What a relative name in the configuration means: the folder that the program was started in,
 * wherever it has gone since (chdir, daemon). */
#ifndef AC_FOLDER_H
#define AC_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum { AC_FOLDER_PATH = 4096 + 512 }; /* room for every name that the kernel takes */

/* From the constructor: two system calls that leave nothing behind.  errno is kept. */
void ac_folder_start(void);

/* `name` as seen from the folder of the start: unchanged while the program is still there, unless
 * it is to stay right (`lasting`) when it leaves.  Where that folder has no name the present one
 * serves.  Returns 0 or ENAMETOOLONG. No allocation, no lock; safe at exit. */
int ac_folder_resolve(const char *name, bool lasting, char *path, size_t size);

#endif
