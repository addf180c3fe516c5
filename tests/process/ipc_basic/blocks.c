/* See blocks.h. */
#include "blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelcache.h"
#include "harness.h"

CUdeviceptr taken(size_t size, unsigned word) {
    CUdeviceptr address;
    MUST(cuMemAlloc_v2(&address, size));
    fill(address, size, word);
    return address;
}

CUipcMemHandle handle_of(CUdeviceptr address) {
    CUipcMemHandle handle;
    GIVES(cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
    return handle;
}

bool same(CUipcMemHandle a, CUipcMemHandle b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

CUdeviceptr opened(peer_t *peer, CUipcMemHandle handle) {
    CUdeviceptr address;
    GIVES(peer_open(peer, handle, &address), CUDA_SUCCESS);
    return address;
}

CUipcMemHandle exported_there(peer_t *peer, CUdeviceptr *address) {
    peer_answer_t answer =
        peer_ask(peer, (peer_ask_t){.what = PEER_ALLOC, .size = 4 * KIB, .word = 11});
    GIVES(answer.result, CUDA_SUCCESS);
    *address = answer.address;
    return answer.handle;
}

unsigned word_at(CUdeviceptr address) {
    unsigned word = 0;
    MUST(cuMemcpyDtoH_v2(&word, address, sizeof word));
    return word;
}
