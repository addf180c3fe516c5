/* See ipc_token.h. */
#include "share/ipc_token.h"

#include <stddef.h>
#include <string.h>

static const unsigned char magic[8] = {0xff, 'A', 'C', 'I', 'P', 'C', 0xff, 0x01};

typedef struct {
    unsigned char magic[8];
    uint8_t kind, version, fill[2];
    int32_t pid;
    uint32_t space, slot;
    uint64_t nonce, serial;
    uint32_t check;
    unsigned char stray[AC_IPC_STRAY], rest[14];
} layout_t;
_Static_assert(sizeof(layout_t) == AC_IPC_TOKEN && offsetof(layout_t, check) == 40,
               "as described");

/* CRC-32C (Castagnoli), a bit at a time: a token is made once in the life of a block. */
static uint32_t crc(uint32_t sum, const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (0x82f63b78u & -(sum & 1));
    }
    return sum;
}

static uint32_t check_of(const layout_t *layout) {
    const unsigned char *bytes = (const unsigned char *)layout;
    enum { AT = offsetof(layout_t, check), BEHIND = AT + sizeof layout->check };
    uint32_t sum = crc(UINT32_MAX, bytes, AT);
    return ~crc(sum, bytes + BEHIND, sizeof *layout - BEHIND);
}

void ac_ipc_token_write(const ac_ipc_token_t *token, unsigned char bytes[AC_IPC_TOKEN]) {
    layout_t layout;
    memset(&layout, 0xff, sizeof layout);
    memcpy(layout.magic, magic, sizeof magic);
    layout.kind = token->kind;
    layout.version = AC_IPC_VERSION;
    layout.pid = token->pid;
    layout.space = token->space;
    layout.slot = token->slot;
    layout.nonce = token->nonce;
    layout.serial = token->serial;
    if (token->stray[0])
        memcpy(layout.stray, token->stray, sizeof layout.stray);
    layout.check = check_of(&layout);
    memcpy(bytes, &layout, sizeof layout);
}

/* mkdtemp puts letters and digits there: nothing else becomes part of a path. */
static bool is_plain(const unsigned char *text, size_t count) {
    for (size_t i = 0; i < count; i++) {
        unsigned char c = text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')))
            return false;
    }
    return true;
}

ac_ipc_origin_t ac_ipc_token_read(const unsigned char bytes[AC_IPC_TOKEN],
                                  ac_ipc_token_t *token) {
    layout_t layout;
    memcpy(&layout, bytes, sizeof layout);
    if (memcmp(layout.magic, magic, sizeof magic) != 0 || layout.check != check_of(&layout))
        return AC_IPC_FOREIGN;
    if (layout.version > AC_IPC_VERSION)
        return AC_IPC_NEWER;
    bool strayed = layout.stray[0] != 0xff;
    bool known = layout.kind == AC_IPC_NATIVE || layout.kind == AC_IPC_PAGES;
    if (layout.version != AC_IPC_VERSION || !known || layout.pid <= 0 || !layout.nonce ||
        !layout.serial || (strayed && !is_plain(layout.stray, AC_IPC_STRAY)))
        return AC_IPC_FOREIGN;
    *token = (ac_ipc_token_t){.kind = layout.kind,
                              .pid = layout.pid,
                              .space = layout.space,
                              .slot = layout.slot,
                              .nonce = layout.nonce,
                              .serial = layout.serial};
    if (strayed)
        memcpy(token->stray, layout.stray, sizeof layout.stray);
    return AC_IPC_OURS;
}
