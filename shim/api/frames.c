/* Stacks as PyTorch's memory snapshots have them: each frame with name, filename and line. */
#include "api/api_int.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bind/objects.h"
#include "observe/sites.h"

typedef struct {
    const char *path, *id;
    uintptr_t base; /* 0: not loaded */
} file_t;

static int is_file(struct dl_phdr_info *info, size_t size, void *arg) {
    file_t *file = arg;
    char id[AC_BUILD_ID];
    ac_object_t object = ac_object_from(info);
    (void)size;
    if (strcmp(object.path ? object.path : "", file->path) != 0)
        return 0;
    ac_object_build_id(&object, id);
    if (strcmp(id, file->id) != 0)
        return 0;
    file->base = object.base;
    return 1;
}

/* The function's name as the loader knows it, else the offset in the file. */
static void put_code(json_t *frame, uint64_t word, bool *failed) {
    char offset[32], exe[AC_LIVE_EXE];
    unsigned number = ac_frame_file(word);
    const char *path = ac_site_file_path(number), *name = offset;
    file_t file = {path ? path : "", ac_site_file_id(number), 0};
    Dl_info info = {.dli_sname = NULL};
    snprintf(offset, sizeof offset, "+0x%" PRIx64, ac_frame_offset(word));
    if (path && ac_object_each(is_file, &file) &&
        dladdr((void *)(file.base + ac_frame_offset(word)), &info) && info.dli_sname)
        name = info.dli_sname;
    if (path && !*path) {
        ac_live_exe(ac_live, exe);
        path = exe;
    }
    ac_json_put_text(frame, "name", name, failed);
    ac_json_put_text(frame, "filename", path ? path : "", failed);
    ac_json_put_integer(frame, "line", 0, failed);
}

/* "function\nfile" of an interpreter; a text of line 0 is the program's, and has no file. */
static void put_text(json_t *frame, uint64_t word, bool *failed) {
    const char *text = ac_site_text_of((uint32_t)((word & ~AC_FRAME_TEXT) >> 32));
    uint32_t line = word & UINT32_MAX;
    const char *end = line && text ? strchr(text, '\n') : NULL;
    size_t length = end ? (size_t)(end - text) : text ? strlen(text) : 0;
    ac_json_put(frame, "name", ac_json_text(text ? text : "", length), failed);
    ac_json_put_text(frame, "filename", end ? end + 1 : "", failed);
    ac_json_put_integer(frame, "line", line, failed);
}

static json_t *frame_json(json_t *known, uint64_t word, bool *failed) {
    char key[24];
    snprintf(key, sizeof key, "f%" PRIx64, word);
    json_t *frame = json_object_get(known, key);
    if (!frame) {
        frame = ac_json_put_object(known, key, failed);
        if (!frame)
            return NULL;
        if (word & AC_FRAME_TEXT)
            put_text(frame, word, failed);
        else
            put_code(frame, word, failed);
    }
    return json_incref(frame);
}

json_t *ac_frames_json(json_t *known, uint32_t stack, bool *failed) {
    char key[24];
    ac_site_t site;
    snprintf(key, sizeof key, "s%" PRIu32, stack);
    json_t *frames = json_object_get(known, key);
    if (frames)
        return json_incref(frames);
    frames = json_array();
    ac_json_put(known, key, json_incref(frames), failed);
    for (unsigned i = 0; ac_site_get(stack, &site) && i < site.count && !*failed; i++)
        ac_json_append(frames, frame_json(known, site.frame[i], failed), failed);
    return frames;
}
