/* `accelcache where`: what lies at a device address. */
#include "command.h"
#include "read/control.h"
#include "read/document.h"
#include "read/naming.h"
#include "read/segments.h"
#include "observe/dump.h"
#include "base/option.h"
#include "read/processes.h"
#include "read/snapshot.h"
#include "show/where_recorded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: accelcache where [--json] ADDRESS [PID|FILE]\n"
    "Explains a device address, for example of an illegal access: the block, the\n"
    "offset in it or past its end, the module that asked for it, and whether the\n"
    "block is held, was freed, or never belonged to the library.\n"
    "\n"
    "  PID   a process of the same user, started with control:true in\n"
    "        ACCEL_ALLOC_CONF\n"
    "  FILE  a dump with blocks: from accelcache ctl PID snapshot FILE, from the key\n"
    "        oom_dump, or from the exit of a program with the key guard; or a\n"
    "        memory snapshot of PyTorch, as pickle or JSON\n"
    "\n"
    "Without either it asks the one process of the user that runs under the\n"
    "library.  ADDRESS is hexadecimal with 0x in front, or decimal.\n"
    "\n"
    "  --json  the answer as JSON\n"
    "\n"
    "Exit status: 0 the address lies in a segment of the library; 1 it does not, or\n"
    "there is no answer: the reason is on stderr, within a second; 2 wrong usage.\n";

/* ------------------------------------------------------------------ what is there */

typedef struct {
    uint64_t address;
    const cmd_segment_t *segment; /* around it; NULL: none */
    const cmd_block_t *block;     /* around it; NULL: none */
    const cmd_block_t *before,
        *behind; /* nearest ones that the program holds or are unmapped */
    const cmd_segment_t *below, *above; /* if it is in none */
} spot_t;

static uint64_t end_of(const cmd_block_t *block) {
    return block->address + (block->requested ? block->requested : block->bytes);
}

static void look_around(spot_t *spot, const cmd_segments_t *list, const cmd_segment_t *segment) {
    for (size_t i = 0; i < segment->blocks; i++) {
        const cmd_block_t *block = &list->block[segment->first + i];
        if (spot->address >= block->address && spot->address - block->address < block->bytes)
            spot->block = block;
        else if (block->state != AC_LAID_ALLOCATED && block->state != AC_LAID_UNMAPPED)
            continue;
        else if (block->address <= spot->address)
            spot->before = block;
        else if (!spot->behind)
            spot->behind = block;
    }
}

static bool is_inside(const cmd_segment_t *segment, uint64_t address) {
    return address >= segment->address && address - segment->address < segment->bytes;
}

static uint64_t distance(const cmd_segment_t *segment, uint64_t address) {
    return address < segment->address ? segment->address - address
                                      : address - (segment->address + segment->bytes);
}

/* Looks on all devices for the segment that has the address, else for the nearest ones. */
static void find(spot_t *spot, const cmd_segments_t *list) {
    for (size_t i = 0; i < list->segments; i++) {
        const cmd_segment_t *segment = &list->segment[i];
        const cmd_segment_t **side = segment->address > spot->address ? &spot->above : &spot->below;
        if (is_inside(segment, spot->address)) {
            spot->segment = segment;
            look_around(spot, list, segment);
            return;
        }
        if (!*side || distance(segment, spot->address) < distance(*side, spot->address))
            *side = segment;
    }
}

/* ------------------------------------------------------------------ words */

static const char *const state_text[AC_LAID_STATES] = {
    [AC_LAID_FREE] = "free memory of the library",
    [AC_LAID_ALLOCATED] = "a block that the program holds",
    [AC_LAID_CACHED] = "a block that was freed, and that a thread keeps for its next request",
    [AC_LAID_PENDING] = "a block that was freed, and that work from before may still use",
    [AC_LAID_HELD] = "a block that was freed, and that a captured graph may use",
    [AC_LAID_UNMAPPED] = "a guarded block that was freed, whose addresses have no memory now"};

static char *bytes_past(uint64_t bytes) {
    char text[CMD_FIGURE];
    return bytes ? cmd_format("%s byte%s past the end of", cmd_text_count(text, (int64_t)bytes),
                              bytes == 1 ? "" : "s")
                 : cmd_format("right behind the end of");
}

/* Returns the call site that asked for the block, if the file has frames of it, else the module; malloc'd. */
static char *asker(const cmd_block_t *block, const json_t *document) {
    char *site = cmd_naming_site(block->frames);
    return site ? site : cmd_format("%s", cmd_module_name(document, block->module));
}

/* Returns the time and the module of a guarded block's free, as the end of a sentence. */
static char *freed(const cmd_block_t *block, const json_t *document) {
    char text[CMD_FIGURE];
    if (!block->freed_ns)
        return cmd_format("%s", "");
    return cmd_format(", freed %s ago by %s", cmd_text_ns(text, (int64_t)block->freed_ns),
                      cmd_module_name(document, block->freed_by));
}

/* Returns the sentence about an address behind the end of a block. */
static char *past_block(const spot_t *spot, const char *what, const json_t *document) {
    const cmd_block_t *block = spot->before;
    char *past = bytes_past(spot->address - end_of(block)), *when = freed(block, document);
    char *all = cmd_format("0x%" PRIx64 " is %s %s%s, in %s", spot->address, past,
                           block->state == AC_LAID_UNMAPPED ? "a guarded block"
                                                            : "a block that the program holds",
                           when, what);
    free(past);
    free(when);
    return all;
}

/* Returns one sentence: the block of the address, or the block before it. */
static char *sentence(const spot_t *spot, const json_t *document) {
    enum { NEAR = 1 << 20 };
    char text[CMD_FIGURE];
    const cmd_block_t *block = spot->block;
    if (!spot->segment && json_is_true(json_object_get(document, "layout_partial")))
        return cmd_format("0x%" PRIx64 " is near no guarded block, and the file lists no others",
                          spot->address);
    if (!spot->segment)
        return cmd_format("0x%" PRIx64
                          " is in no segment of the library: it was never its memory, "
                          "or went back to the driver",
                          spot->address);
    if (block && block->state != AC_LAID_FREE) {
        bool beyond = spot->address >= end_of(block) &&
                      (block->state == AC_LAID_ALLOCATED || block->state == AC_LAID_UNMAPPED);
        char *place =
            beyond ? bytes_past(spot->address - end_of(block))
                   : cmd_format("byte %s of",
                                cmd_text_count(text, (int64_t)(spot->address - block->address)));
        char *when = freed(block, document);
        char *all =
            cmd_format("0x%" PRIx64 " is %s %s%s%s", spot->address, place,
                       beyond ? "what was asked for, in " : "", state_text[block->state], when);
        free(place);
        free(when);
        return all;
    }
    const char *what =
        block ? state_text[AC_LAID_FREE] : "addresses of the library without memory";
    if (!spot->before || spot->address - end_of(spot->before) > NEAR)
        return cmd_format("0x%" PRIx64 " is in %s", spot->address, what);
    return past_block(spot, what, document);
}

static void add_block(cmd_table_t *table, const char *title, const cmd_block_t *block,
                      const json_t *document) {
    char size[CMD_FIGURE], asked[CMD_FIGURE];
    char *place = cmd_format("0x%" PRIx64, block->address);
    char *by = asker(block, document);
    char *known = block->requested
                      ? cmd_format(", %s bytes asked for by %s",
                                   cmd_text_count(asked, (int64_t)block->requested), by)
                  : block->state != AC_LAID_FREE ? cmd_format(", of %s", by)
                                                 : cmd_format("%s", "");
    char *stream = block->stream
                       ? cmd_format(", freed in the order of stream 0x%" PRIx64, block->stream)
                       : cmd_format("%s", block->async ? ", asked for on a stream" : "");
    char *when = freed(block, document);
    char *since = block->asked_ns
                      ? cmd_format(" %s ago", cmd_text_ns(asked, (int64_t)block->asked_ns))
                      : cmd_format("%s", "");
    char *text = cmd_format("%s, %s%s%s%s%s", cmd_text_bytes(size, (int64_t)block->bytes),
                            ac_laid_words[block->state], known, since, stream, when);
    cmd_table_row(table, title, place, text, NULL);
    free(place);
    free(by);
    free(known);
    free(stream);
    free(when);
    free(since);
    free(text);
}

static void add_segment(cmd_table_t *table, const char *title, const cmd_segment_t *segment,
                        const char *more) {
    char size[CMD_FIGURE];
    char *place = cmd_format("0x%" PRIx64, segment->address);
    char *text =
        cmd_format("%s of the %s pool%s%s%s", cmd_text_bytes(size, (int64_t)segment->bytes),
                   segment->small ? "small" : "large",
                   segment->guarded ? ", of guarded blocks"
                   : segment->expandable ? ", expandable"
                                    : "",
                   segment->exported ? ", known to other processes" : "", more);
    cmd_table_row(table, title, place, text, NULL);
    free(place);
    free(text);
}

static void add_near(cmd_table_t *table, const spot_t *spot, const cmd_segment_t *segment,
                     const char *side) {
    char away[CMD_FIGURE];
    if (!segment)
        return;
    char *more = cmd_format(
        ", %s %s", cmd_text_bytes(away, (int64_t)distance(segment, spot->address)), side);
    add_segment(table, "nearest segment", segment, more);
    free(more);
}

/* Adds the newest block there, from a snapshot's traces. */
static void add_life(cmd_table_t *table, cmd_snapshot_life_t *life) {
    char size[CMD_FIGURE];
    char *place = cmd_format("0x%" PRIx64, life->address);
    char *text = cmd_format("%s asked for by %s%s%s", cmd_text_bytes(size, (int64_t)life->bytes),
                            life->asked_by ? life->asked_by : "code of no file",
                            life->freed ? ", freed by " : "",
                            !life->freed     ? ""
                            : life->freed_by ? life->freed_by
                                             : "code of no file");
    cmd_table_row(table, "newest there", place, text, NULL);
    free(place);
    free(text);
    free(life->asked_by);
    free(life->freed_by);
}

static json_t *life_json(const json_t *document, uint64_t address) {
    cmd_snapshot_life_t life;
    if (!cmd_snapshot_life(document, address, &life))
        return json_null();
    json_t *json =
        json_pack("{s:I, s:I, s:o, s:b, s:o}", "address", (json_int_t)life.address, "size",
                  (json_int_t)life.bytes, "asked_by",
                  life.asked_by ? cmd_json_text(life.asked_by) : json_null(), "freed", life.freed,
                  "freed_by", life.freed_by ? cmd_json_text(life.freed_by) : json_null());
    free(life.asked_by);
    free(life.freed_by);
    return json;
}

static void print(const spot_t *spot, const json_t *document) {
    char *line = sentence(spot, document);
    cmd_print_safe(line);
    putchar('\n');
    free(line);
    cmd_table_t *table = cmd_table_new("lll");
    if (spot->block)
        add_block(table, "block", spot->block, document);
    if (spot->segment) {
        char *more = cmd_format(", of device %d", spot->segment->device);
        add_segment(table, "segment", spot->segment, more);
        free(more);
    }
    if (spot->before)
        add_block(table, spot->before->freed_ns ? "freed before it" : "held before it",
                  spot->before, document);
    if (spot->behind)
        add_block(table, spot->behind->freed_ns ? "freed behind it" : "held behind it",
                  spot->behind, document);
    json_t *recorded = cmd_where_recorded(document, spot->block, spot->address);
    int64_t now_ns = cmd_integer(recorded, "time_ns");
    cmd_where_rows(table, "asked for", json_object_get(recorded, "alloc"), now_ns);
    cmd_where_rows(table, "freed", json_object_get(recorded, "free"), now_ns);
    json_decref(recorded);
    if (!spot->segment) {
        add_near(table, spot, spot->below, "before the address");
        add_near(table, spot, spot->above, "behind the address");
    }
    cmd_snapshot_life_t life;
    if (cmd_snapshot_life(document, spot->address, &life))
        add_life(table, &life);
    cmd_table_print(table, 2);
}

/* ------------------------------------------------------------------ for machines */

static json_t *ago_json(uint64_t ns) {
    return ns ? json_integer((json_int_t)(ns / 1000000)) : json_null();
}

static json_t *block_json(const cmd_block_t *block, const json_t *document) {
    if (!block)
        return json_null();
    char *by = asker(block, document);
    json_t *module = block->state == AC_LAID_FREE ? json_null() : cmd_json_text(by);
    free(by);
    return json_pack(
        "{s:I, s:I, s:s, s:I, s:o, s:o, s:b, s:o, s:o, s:o}", "address",
        (json_int_t)block->address, "size", (json_int_t)block->bytes, "state",
        ac_laid_words[block->state], "requested", (json_int_t)block->requested, "module", module,
        "stream", block->stream ? json_integer((json_int_t)block->stream) : json_null(), "async",
        block->async, "asked_ago_ms", ago_json(block->asked_ns), "freed_ago_ms",
        ago_json(block->freed_ns), "freed_by",
        block->freed_ns ? cmd_json_text(cmd_module_name(document, block->freed_by))
                        : json_null());
}

static json_t *segment_json(const cmd_segment_t *segment) {
    if (!segment)
        return json_null();
    return json_pack("{s:I, s:I, s:s, s:b, s:b, s:b}", "address", (json_int_t)segment->address,
                     "size", (json_int_t)segment->bytes, "pool",
                     segment->small ? "small" : "large", "expandable", segment->expandable, "exported",
                     segment->exported, "guarded", segment->guarded);
}

/* Returns the bytes between the end of the request and the address; null: the address is not past it. */
static json_t *past_json(const spot_t *spot) {
    bool in_one = spot->block && spot->block->state != AC_LAID_FREE;
    const cmd_block_t *block = in_one ? spot->block : spot->before;
    bool whole = block && (block->state == AC_LAID_ALLOCATED || block->state == AC_LAID_UNMAPPED);
    return whole && spot->address >= end_of(block)
               ? json_integer((json_int_t)(spot->address - end_of(block)))
               : json_null();
}

static void print_json(const spot_t *spot, const json_t *document) {
    char *line = sentence(spot, document);
    json_t *recorded = cmd_where_recorded(document, spot->block, spot->address);
    json_t *whole = json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "address",
        (json_int_t)spot->address, "text", cmd_json_text(line), "device",
        spot->segment ? json_integer(spot->segment->device) : json_null(), "block",
        block_json(spot->block, document), "offset",
        spot->block ? json_integer((json_int_t)(spot->address - spot->block->address))
                    : json_null(),
        "past_end", past_json(spot), "segment", segment_json(spot->segment), "before",
        block_json(spot->before, document), "behind", block_json(spot->behind, document),
        "nearest", json_pack("[o, o]", segment_json(spot->below), segment_json(spot->above)),
        "alloc", cmd_where_named(json_object_get(recorded, "alloc")), "free",
        cmd_where_named(json_object_get(recorded, "free")));
    json_decref(recorded);
    json_object_set_new(whole, "newest", life_json(document, spot->address));
    free(line);
    cmd_print_json(whole, 0);
}

/* ------------------------------------------------------------------ where from */

/* Returns an empty object if the process tells nothing, like an older version. */
static json_t *ask_recorded(const ac_live_name_t *name, const char *question) {
    ac_control_answer_t answer;
    char *error = NULL;
    json_t *recorded = NULL;
    if (cmd_control(name, AC_CONTROL_RECORDED, question, &answer, &error))
        recorded = json_loads(answer.text, 0, NULL);
    free(error);
    return recorded ? recorded : json_object();
}

/* Returns the document of a page, with the blocks that its process lists near the address.  NULL: *error. */
static json_t *ask(const ac_live_name_t *name, uint64_t address, char **error) {
    ac_control_answer_t answer;
    char why[1200];
    bool alive;
    char *question = cmd_format("%" PRIu64, address);
    bool done = cmd_control(name, AC_CONTROL_WHERE, question, &answer, error);
    json_t *near = done ? json_loads(answer.text, 0, NULL) : NULL;
    json_t *asked = done ? ask_recorded(name, question) : NULL;
    free(question);
    if (!done)
        return NULL;
    const ac_live_t *page = ac_live_read(name, &alive, why, sizeof why);
    const ac_dump_more_t nothing = {0};
    size_t length;
    char *text = page ? ac_dump_text_with(page, "running", &nothing, &length) : NULL;
    json_t *document = text ? json_loadb(text, length, 0, NULL) : NULL;
    if (page)
        ac_live_free(page);
    free(text);
    if (document && near) {
        json_object_set_new(document, "layout", near);
        json_object_set_new(document, "asked", asked);
        return document;
    }
    *error = page ? cmd_format("process %d answered what this version does not read", name->pid)
                  : cmd_format("%s", why);
    json_decref(near);
    json_decref(asked);
    json_decref(document);
    return NULL;
}

/* The one process that runs. */
static bool only_process(ac_live_name_t *name, char **error) {
    cmd_processes_t processes = {.quiet = false};
    unsigned running = 0;
    cmd_processes_find(&processes);
    for (unsigned i = 0; i < processes.count; i++)
        if (processes.process[i].alive && !running++)
            *name = processes.process[i].name;
    cmd_processes_clear(&processes);
    if (running != 1)
        *error = running
                     ? cmd_format("%u processes run under the library: name one (accelcache ps)",
                                  running)
                     : cmd_format("no process of yours runs under the library: name a file");
    return running == 1;
}

static json_t *document_of(const char *source, uint64_t address, char **error) {
    ac_live_name_t name;
    uint64_t space;
    int pid;
    if (!source)
        return only_process(&name, error) ? ask(&name, address, error) : NULL;
    if (!cmd_process_read(source, &pid, &space)) {
        size_t length;
        char *text = cmd_document_text(source, 0, &length, error);
        json_t *document = text ? cmd_snapshot_parse(text, length, error) : NULL;
        if (text && !document && !*error)
            document = cmd_document_parse(text, length, error);
        free(text);
        if (!document) {
            char *whole = cmd_format("%s: %s", source, *error);
            free(*error);
            *error = whole;
        }
        return document;
    }
    return cmd_control_find(pid, space, &name, error) ? ask(&name, address, error) : NULL;
}

static int where(uint64_t address, const char *source, bool json) {
    char *error = NULL;
    cmd_segments_t list = {0};
    spot_t spot = {.address = address};
    json_t *document = document_of(source, address, &error);
    const json_t *segments = json_object_get(document, "segments"), *layout = json_object_get(document, "layout");
    bool done = document && (segments ? cmd_segments_of_snapshot(&list, segments, &error)
                                      : cmd_segments_of_dump(&list, layout, &error));
    if (done) {
        find(&spot, &list);
        if (json)
            print_json(&spot, document);
        else
            print(&spot, document);
        if (spot.segment && !spot.block && list.unlisted)
            cmd_say("the file lists no blocks of this segment: there were too many");
    } else if (json) {
        cmd_print_json(json_pack("{s:I, s:o}", "address", (json_int_t)address, "error",
                                 cmd_json_text(error)),
                       0);
    }
    if (!done)
        cmd_say("%s", error);
    free(error);
    cmd_segments_free(&list);
    json_decref(document);
    return done && spot.segment ? CMD_OK : CMD_FAILED;
}

/* Hexadecimal with 0x, else decimal; device addresses have 49 bits at most. */
static bool read_address(const char *text, uint64_t *address) {
    char *end;
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    *address = strtoull(text, &end, hex ? 16 : 10);
    return *text >= '0' && *text <= '9' && !*end && *address < INT64_MAX;
}

int cmd_where(int argc, char **argv) {
    bool json = false;
    int status;
    uint64_t address;
    const cmd_option_t options[] = {{"json", 'j', .flag = &json}, {.name = NULL}};
    if (!cmd_options(argc, argv, options, help, &status))
        return status;
    if (optind == argc)
        return cmd_usage("ADDRESS is missing");
    if (!read_address(argv[optind], &address))
        return cmd_usage("\"%s\" is no address: 0x7f0000000000, or decimal", argv[optind]);
    if (argc - optind > 2)
        return cmd_usage("\"%s\" is one argument too many", argv[optind + 2]);
    return where(address, argv[optind + 1], json);
}
