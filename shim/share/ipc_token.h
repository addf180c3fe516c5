/* The handle that cuIpcGetMemHandle answers for a block inside a segment, or on pages: 64 bytes that name an
 * entry of the exporting process's table (ipc_table.h).  The table alone has the memory's address and
 * size, so that a damaged token cannot reach beyond a block.
 *
 *    0  magic[8]    with bytes ff: no pid, no count and no handle of a driver reads as valid there
 *    8  kind        AC_IPC_NATIVE, AC_IPC_PAGES
 *    9  version     AC_IPC_VERSION
 *   10  ff ff
 *   12  pid         of the exporter, in its own pid namespace
 *   16  space       inode number of that namespace, its low 32 bits
 *   20  slot        of the table
 *   24  nonce[8]    random, of one process image: made at its first export
 *   32  serial[8]   of the block's lifetime, never used twice by a process
 *   40  check       CRC-32C of the other 60 bytes
 *   44  stray[6]    of the folder accelcache-<uid>.<stray> that has the table; ff: no stray
 *   50  ff to the end
 *
 * Words are in the byte order of the machine.  A lifetime always gives the same bytes, since libraries
 * compare handles. */
#ifndef AC_IPC_TOKEN_H
#define AC_IPC_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

enum { AC_IPC_TOKEN = 64, AC_IPC_VERSION = 1, AC_IPC_STRAY = 6 };
enum { AC_IPC_NATIVE = 1, AC_IPC_PAGES = 2 };

typedef struct {
    uint8_t kind;
    int32_t pid;
    uint32_t space, slot;
    uint64_t nonce, serial;
    char stray[AC_IPC_STRAY + 1]; /* "": the folder accelcache-<uid> */
} ac_ipc_token_t;

typedef enum {
    AC_IPC_FOREIGN, /* not of this library: a driver's, or damaged */
    AC_IPC_NEWER,   /* of a version that this one cannot read */
    AC_IPC_OURS
} ac_ipc_origin_t;

void ac_ipc_token_write(const ac_ipc_token_t *token, unsigned char bytes[AC_IPC_TOKEN]);

/* Sets *token if the answer is AC_IPC_OURS. */
ac_ipc_origin_t ac_ipc_token_read(const unsigned char bytes[AC_IPC_TOKEN], ac_ipc_token_t *token);

#endif
