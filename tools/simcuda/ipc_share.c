/* Registers, tokens and peers of memory and events shared between processes.  Global lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "ipc_share.h"

_Static_assert(sizeof(sim_token_t) <= CU_IPC_HANDLE_SIZE, "a token fits into a handle");

sim_share_t *sim_share;
static int share_fd = -1;
static sim_peer_t *peers;

bool sim_share_start(void) {
    if (sim_share)
        return true;
    int fd = memfd_create("simcuda-exports", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    void *map = MAP_FAILED;
    if (!ftruncate(fd, sizeof *sim_share))
        map = mmap(NULL, sizeof *sim_share, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint64_t cookie;
    if (map == MAP_FAILED || getrandom(&cookie, sizeof cookie, 0) != sizeof cookie) {
        if (map != MAP_FAILED)
            munmap(map, sizeof *sim_share);
        close(fd);
        return false;
    }
    sim_share = map;
    share_fd = fd;
    sim_share->magic = SIM_SHARE_MAGIC;
    sim_share->cookie = cookie;
    return true;
}

/* ---- tokens ---- */

static uint8_t checksum(sim_token_t token) {
    unsigned char bytes[sizeof token];
    token.check = 0;
    memcpy(bytes, &token, sizeof token);
    unsigned sum = 0x5a;
    for (size_t i = 0; i < sizeof bytes; i++)
        sum = sum * 31 + bytes[i];
    return (uint8_t)(sum ^ sum >> 8);
}

void sim_token_seal(sim_token_t *token, uint64_t magic) {
    token->magic = magic;
    token->cookie = sim_share->cookie;
    token->pid = getpid();
    token->register_fd = share_fd;
    token->check = checksum(*token);
}

bool sim_token_read(sim_token_t *token, const void *handle, uint64_t magic) {
    memcpy(token, handle, sizeof *token);
    return token->magic == magic && token->check == checksum(*token);
}

CUresult sim_token_open(const sim_token_t *token, int its_fd, int *out) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", token->pid, its_fd);
    *out = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (*out >= 0)
        return CUDA_SUCCESS;
    return errno == EACCES || errno == EPERM ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- peers ---- */

/* Opens the register that the token names.  A new process may have the process number of one that
 * ended.  After an exec, the descriptor may even refer to another register.  The cookie detects
 * both cases. */
static CUresult open_register(const sim_token_t *token, int *fd) {
    uint64_t head[2];
    CUresult result = sim_token_open(token, token->register_fd, fd);
    if (result)
        return result;
    if (pread(*fd, head, sizeof head, 0) == sizeof head && head[0] == SIM_SHARE_MAGIC &&
        head[1] == token->cookie && lseek(*fd, 0, SEEK_END) == sizeof(sim_share_t))
        return CUDA_SUCCESS;
    close(*fd);
    return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult peer_new(const sim_token_t *token, int fd, sim_peer_t **out) {
    sim_peer_t *peer = calloc(1, sizeof *peer);
    if (!peer)
        return CUDA_ERROR_OUT_OF_MEMORY;
    peer->share = mmap(NULL, sizeof *peer->share, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (peer->share == MAP_FAILED) {
        free(peer);
        return CUDA_ERROR_MAP_FAILED;
    }
    peer->cookie = token->cookie;
    peer->pid = token->pid;
    peer->next = peers;
    peers = peer;
    *out = peer;
    return CUDA_SUCCESS;
}

CUresult sim_peer_open(const sim_token_t *token, sim_peer_t **out) {
    int fd;
    CUresult result = open_register(token, &fd);
    if (result)
        return result;
    sim_peer_t *peer = peers;
    while (peer && peer->cookie != token->cookie)
        peer = peer->next;
    if (!peer)
        result = peer_new(token, fd, &peer);
    close(fd);
    if (result)
        return result;
    peer->refs++;
    *out = peer;
    return CUDA_SUCCESS;
}

void sim_peer_close(sim_peer_t *peer) {
    if (--peer->refs)
        return;
    for (sim_peer_t **link = &peers; *link; link = &(*link)->next)
        if (*link == peer) {
            *link = peer->next;
            break;
        }
    munmap(peer->share, sizeof *peer->share);
    free(peer);
}

bool sim_process_runs(pid_t pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return false;
    text[length] = 0;
    /* The text is "pid (name) state"; the name may contain anything, even brackets. */
    const char *end = strrchr(text, ')');
    return !end || (end[1] && end[2] != 'Z' && end[2] != 'X');
}
