/* Findings of `doctor` about memory that a program shares by CUDA IPC: how much, which blocks, and what that
 * costs. */
#include "command.h"
#include "run/doctor.h"
#include "read/document.h"
#include "observe/live_file.h"
#include "share/ipc_table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------ figures */

#define PROCESS(name) (int64_t) figures->process[AC_COUNT_##name]

static void check_blocks(cmd_findings_t *findings, const cmd_figures_t *figures) {
    char count[CMD_FIGURE], held[CMD_FIGURE], fenced[CMD_FIGURE];
    if (!PROCESS(ipc_exported))
        return;
    cmd_finding(findings, CMD_FINDING_NOTE, "exports",
                "%s blocks were given an IPC handle; %s of them are held now. Such a block "
                "serves again after its free, and its neighbours in the segment all the while. "
                "What it costs: memory freed after the first export waits for a fence, as with "
                "several streams (%s frees did), and a segment stays while a block in it is held",
                cmd_text_count(count, PROCESS(ipc_exported)),
                cmd_text_bytes(held, PROCESS(ipc_exported_bytes)),
                cmd_text_count(fenced, (int64_t)figures->device.fenced_frees));
}

static void check_segments(cmd_findings_t *findings, const cmd_figures_t *figures) {
    char count[CMD_FIGURE];
    if (PROCESS(exported_segments))
        cmd_finding(findings, CMD_FINDING_NOTE, "exports",
                    "%s segments were shared as a whole. What it costs: each serves no other "
                    "request and goes back to the driver when its block is freed, so that the "
                    "next request of that size calls the driver",
                    cmd_text_count(count, PROCESS(exported_segments)));
}

static void check_failures(cmd_findings_t *findings, const cmd_figures_t *figures) {
    const struct {
        int64_t count;
        const char *text;
    } rows[] = {
        {PROCESS(ipc_refused),
         "IPC handles were refused: ipc:off asks for that, or the table of exports had no file "
         "beside the live statistics; the dump's warnings name the reason"},
        {PROCESS(ipc_unresolved),
         "IPC handles of other processes could not be opened: the exporting process has ended, "
         "is "
         "of another user or pid namespace, or has another ACCEL_LIVE_DIR"},
        {PROCESS(refused_shares),
         "handles of memory inside a segment were refused; ACCEL_ALLOC_CONF=enabled:false shows "
         "whether the program depends on them"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char count[CMD_FIGURE];
        if (rows[i].count)
            cmd_finding(findings, CMD_FINDING_NOTE, "exports", "%s %s",
                        cmd_text_count(count, rows[i].count), rows[i].text);
    }
}

void cmd_doctor_shares(cmd_findings_t *findings, const cmd_figures_t *figures) {
    char count[CMD_FIGURE];
    check_blocks(findings, figures);
    check_segments(findings, figures);
    check_failures(findings, figures);
    if (PROCESS(ipc_imported))
        cmd_finding(findings, CMD_FINDING_OK, "imports",
                    "%s times memory of other processes was opened",
                    cmd_text_count(count, PROCESS(ipc_imported)));
    if (!PROCESS(ipc_exported) && !PROCESS(exported_segments) && !PROCESS(ipc_refused) &&
        !PROCESS(refused_shares))
        cmd_finding(findings, CMD_FINDING_OK, "exports",
                    "no memory was shared with other processes: it costs nothing");
}

/* ------------------------------------------------------------------ which blocks */

enum { MOST_SHOWN = 8 };

typedef struct {
    ac_ipc_entry_t *entry;
    size_t count;
} exports_t;

static bool read_whole(int fd, void *data, size_t size, uint64_t at) {
    return pread(fd, data, size, (off_t)at) == (ssize_t)size;
}

/* The entries in use of the table that `fd` has open; the process may change it meanwhile. */
static void read_table(int fd, uint64_t size, exports_t *exports) {
    ac_ipc_header_t header;
    if (!read_whole(fd, &header, sizeof header, 0) || header.magic != AC_IPC_TABLE_MAGIC ||
        header.version != AC_IPC_TABLE_VERSION || header.entry != sizeof(ac_ipc_entry_t))
        return;
    uint64_t chunks = size / AC_IPC_CHUNK;
    if (chunks > AC_IPC_CHUNKS)
        chunks = AC_IPC_CHUNKS;
    for (uint32_t slot = 1; slot < chunks * AC_IPC_SLOTS; slot++) {
        ac_ipc_entry_t entry;
        if (!read_whole(fd, &entry, sizeof entry, ac_ipc_slot_at(slot)) || !entry.serial ||
            entry.size > entry.mapping)
            continue;
        exports->entry =
            cmd_resize(exports->entry, (exports->count + 1) * sizeof *exports->entry);
        exports->entry[exports->count++] = entry;
    }
}

static int by_size(const void *a, const void *b) {
    const ac_ipc_entry_t *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* In the form of dumps and nvidia-smi. */
static void uuid_text(const unsigned char uuid[AC_IPC_UUID], char text[48]) {
    char *at = text + sprintf(text, "GPU-");
    for (int i = 0; i < AC_IPC_UUID; i++)
        at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static void show(cmd_findings_t *findings, const exports_t *exports) {
    uint64_t rest = 0;
    char size[CMD_FIGURE], whole[CMD_FIGURE], uuid[48];
    for (size_t i = 0; i < exports->count; i++) {
        const ac_ipc_entry_t *entry = &exports->entry[i];
        if (i >= MOST_SHOWN) {
            rest += entry->size;
            continue;
        }
        uuid_text(entry->uuid, uuid);
        cmd_finding(findings, CMD_FINDING_NOTE, "exported",
                    "%s at byte %llu of a segment of %s on %s",
                    cmd_text_bytes(size, (int64_t)entry->size), (unsigned long long)entry->offset,
                    cmd_text_bytes(whole, (int64_t)entry->mapping), uuid);
    }
    if (exports->count > MOST_SHOWN)
        cmd_finding(findings, CMD_FINDING_NOTE, "exported", "%zu smaller ones, %s together",
                    exports->count - MOST_SHOWN, cmd_text_bytes(size, (int64_t)rest));
}

void cmd_doctor_exports(cmd_findings_t *findings, const ac_live_name_t *name) {
    exports_t exports = {0};
    struct stat status;
    char *file = cmd_format("%s.ipc", name->file);
    int home = ac_live_home_open(name->home, name->user);
    int fd = home < 0 ? -1 : ac_live_file_open(home, file, name->user, &status);
    if (fd >= 0) {
        read_table(fd, (uint64_t)status.st_size, &exports);
        close(fd);
    }
    if (home >= 0)
        close(home);
    if (exports.count)
        qsort(exports.entry, exports.count, sizeof *exports.entry, by_size);
    show(findings, &exports);
    free(exports.entry);
    free(file);
}
