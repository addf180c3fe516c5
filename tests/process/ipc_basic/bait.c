/* Sockets that answer an importer as no exporter does. */
#include "peer.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness.h"

enum { WORDS = 3 }; /* of an answer: magic, count and error, bytes */
#define MAGIC ((uint64_t)0x3245504950434143)
#define PAGE  ((uint64_t)2 << 20)

static bait_t bait;

static void answer(int client, const uint64_t *words, size_t size, unsigned fds) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(16 * sizeof(int))];
    } rights;
    struct iovec data = {(void *)(uintptr_t)words, size};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    int null = open("/dev/null", O_RDWR);
    if (fds) {
        memset(&rights, 0, sizeof rights);
        message.msg_control = &rights;
        message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        rights.head.cmsg_level = SOL_SOCKET;
        rights.head.cmsg_type = SCM_RIGHTS;
        rights.head.cmsg_len = CMSG_LEN(fds * sizeof(int));
        for (unsigned i = 0; i < fds; i++)
            memcpy(CMSG_DATA(&rights.head) + i * sizeof null, &null, sizeof null);
    }
    sendmsg(client, &message, MSG_NOSIGNAL);
    close(null);
}

static void serve(int client) {
    uint64_t words[WORDS] = {MAGIC, 1, PAGE};
    char request[256];
    if (bait == BAIT_SILENT) {
        pause();
        return;
    }
    if (recv(client, request, sizeof request, 0) <= 0)
        return;
    if (bait == BAIT_GARBAGE)
        memset(words, 0xa5, sizeof words);
    if (bait == BAIT_GARBAGE)
        answer(client, words, sizeof words, 12);
    if (bait == BAIT_EMPTY) /* no descriptor where there should be one */
        answer(client, words, sizeof words, 0);
    if (bait == BAIT_SHORT)
        answer(client, words, 8, 1);
    if (bait == BAIT_WRONG) /* one that stands for no memory */
        answer(client, words, sizeof words, 1);
}

static void *listen_there(void *arg) {
    int listener = *(int *)arg;
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client >= 0 && bait != BAIT_ENDS)
            serve(client);
        close(client);
    }
    return NULL;
}

void bait_start(const char *path, bait_t what) {
    static int listener;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;
    bait = what;
    if (listener)
        return;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    NEED(chdir(folder) == 0); /* the path may be longer than a socket's */
    snprintf(address.sun_path, sizeof address.sun_path, "%s", strrchr(path, '/') + 1);
    unlink(address.sun_path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    NEED(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    NEED(listen(listener, 8) == 0);
    NEED(!pthread_create(&thread, NULL, listen_there, &listener));
}
