/* The table of blocks that this process exported by tokens (ipc_token.h), for importing processes.
 *
 * The table is the file <space>-<pid>.ipc next to the live page (observe/live.h), mode 0600, made at
 * the first export.  It grows by AC_IPC_CHUNK bytes, which have memory before they are mapped, so
 * that a full disk is an error of the export and never a signal.  A process of the same user that
 * truncates the file ends this one by SIGBUS; it could kill it anyway.
 * Importers only read, by pread (ipc_lookup.h).
 *
 * An entry's serial is stored last and cleared first. A reader that finds the same serial before and
 * after its read has read the entry of one lifetime.
 *
 * The file is removed at exit. After a kill it is removed with the live page, by the next process with
 * the pid, or by an importer that finds the process dead.  A fork child has no table; after
 * exec there is a new nonce, and older tokens name nothing. */
#ifndef AC_IPC_TABLE_H
#define AC_IPC_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "share/ipc_token.h"

enum { AC_IPC_HANDLE = 64, AC_IPC_UUID = 16, AC_IPC_TABLE_VERSION = 1, AC_IPC_CHUNK = 64 << 10 };
#define AC_IPC_TABLE_MAGIC ((uint64_t)0x4c42544350494341) /* "ACIPCTBL" */

/* Head of the file; each chunk but the first begins with an entry. */
typedef struct {
    uint64_t magic;
    uint32_t version, uid;
    int32_t pid;
    uint32_t entry; /* bytes of an entry */
    uint64_t nonce;
    uint64_t opened_ns; /* as in the live page: a process that started later is another one */
    unsigned char rest[152];
} ac_ipc_header_t;

typedef struct {
    uint64_t serial;                 /* 0: no block */
    uint64_t offset;                 /* of the block in what the handle or its pages map, bytes */
    uint64_t size;                   /* of the block as the program asked for it, bytes */
    uint64_t mapping;                /* bytes of the whole */
    unsigned char uuid[AC_IPC_UUID]; /* of the device */
    unsigned char
        handle[AC_IPC_HANDLE]; /* of the driver; on pages: bytes of this lifetime alone */
    uint64_t address;          /* on pages: of the block, as its exporter knows it */
    unsigned char rest[72];
} ac_ipc_entry_t;
_Static_assert(sizeof(ac_ipc_header_t) == 192 && sizeof(ac_ipc_entry_t) == 192, "one size");

/* Slots: the header is number 0 of its chunk, so that no token has slot 0. */
enum { AC_IPC_SLOTS = AC_IPC_CHUNK / (int)sizeof(ac_ipc_entry_t), AC_IPC_CHUNKS = 512 };
static inline uint64_t ac_ipc_slot_at(uint32_t slot) {
    return (uint64_t)(slot / AC_IPC_SLOTS) * AC_IPC_CHUNK +
           slot % AC_IPC_SLOTS * sizeof(ac_ipc_entry_t);
}

/* An empty slot for the caller, *slot > 0; makes or grows the file.  Returns 0 or an errno value,
 * ENOSPC if there is no more room.  Any thread, with no lock held. */
int ac_ipc_table_reserve(uint32_t *slot);

/* Fill a slot that the caller reserved, all but its serial: no importer finds it yet. */
void ac_ipc_table_fill(uint32_t slot, const ac_ipc_entry_t *entry);

/* Importers find the filled slot by its serial from now on; with 0 the slot is empty again, and
 * importers that look from the return on find nothing.  No system call; any lock but those of rank
 * LEAF may be held. */
void ac_ipc_table_publish(uint32_t slot, uint64_t serial);

/* The token of a published slot, of this kind. */
void ac_ipc_table_token(int kind, uint32_t slot, uint64_t serial,
                        unsigned char bytes[AC_IPC_TOKEN]);

/* Returns true if the token is one of this process; the entry then, as it is: its serial may be another. */
bool ac_ipc_table_find(const ac_ipc_token_t *token, ac_ipc_entry_t *entry);

/* At exit: remove the file.  No allocation, no lock, no function of the C library that asks the
 * kernel (observe/raw.h). */
void ac_ipc_table_close(void);

/* In a fork child: no table.  Async-signal-safe. */
void ac_ipc_table_fork_child(void);

#endif
