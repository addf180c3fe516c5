/* The configuration parser: every key, every refusal, and a seeded mutation loop. */
#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "config/config.h"
#include "observe/scratch.h"
#include "run_suite.h"

static ac_config_t config;
static ac_config_error_t error;
static ac_config_warnings_t warnings;

static void accept(const char *text) {
    ck_assert_msg(ac_config_parse(text, &config, &error, &warnings) == 0, "%s: %s", text,
                  error.text);
}

/* Expects `text` to be refused at `position` with a message that contains `part`. */
static void refuse(const char *text, size_t position, const char *part) {
    ac_config_t before;
    memset(&config, 0x5a, sizeof config);
    before = config;
    ck_assert_msg(ac_config_parse(text, &config, &error, &warnings) == -1, "accepted: %s", text);
    ck_assert_msg(memcmp(&before, &config, sizeof config) == 0, "%s: config was touched", text);
    ck_assert_msg(error.position == position, "%s: position %zu, expected %zu: %s", text,
                  error.position, position, error.text);
    ck_assert_msg(strstr(error.text, part) != NULL, "%s: \"%s\" lacks \"%s\"", text, error.text,
                  part);
    ck_assert_msg(strchr(error.text, '\n') == NULL, "%s: newline in the message", text);
    ck_assert_uint_eq(warnings.count, 0);
}

START_TEST(defaults) {
    static const char *const empty[] = {NULL, "", " \t\n"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        memset(&config, 0x5a, sizeof config);
        ck_assert_int_eq(ac_config_parse(empty[i], &config, &error, NULL), 0);
        ck_assert(config.enabled && config.free_sync == AC_FREE_SYNC_AUTO);
        ck_assert(config.max_split_size == UINT64_MAX);
        ck_assert(config.large_segment_size == (uint64_t)20 << 20);
        for (int slot = 0; slot < AC_CONFIG_DIVISIONS; slot++)
            ck_assert_uint_eq(config.divisions[slot], 0);
        ck_assert(config.gc_threshold == 0);
        ck_assert(config.per_process_memory_fraction == 1);
        ck_assert(config.wait_budget == 0.2 && !config.low_memory);
        ck_assert(config.memory_limit == 0);
        ck_assert_int_eq(config.fence, AC_FENCE_AUTO);
        ck_assert_int_eq(config.deepbind, AC_DEEPBIND_STRIP);
        ck_assert_str_eq(config.dump, "accelcache-%p.json");
        ck_assert_int_eq(config.dump_signal, 12); /* USR2 on all Linux but MIPS and Alpha */
        ck_assert(config.dump_interval == 0);
        ck_assert_int_eq(config.log_level, 2);
    }
    ac_config_t direct;
    ac_config_default(&direct);
    ck_assert_int_eq(memcmp(&direct, &config, sizeof config), 0);
}
END_TEST

START_TEST(every_key) {
    accept(" enabled : false , max_split_size_mb:128,large_segment_size_mb:64,\n"
           "roundup_power2_divisions:8,garbage_collection_threshold:0.8,"
           "per_process_memory_fraction:0.5,memory_limit:3G,free_sync:True,fence:streams,"
           "deepbind:keep,dump:/tmp/a:b [%p].json ,dump_signal:HUP,dump_interval:2.5,"
           "log_level:debug,");
    ck_assert(!config.enabled && config.free_sync == AC_FREE_SYNC_ON);
    ck_assert(config.max_split_size == (uint64_t)128 << 20);
    ck_assert(config.large_segment_size == (uint64_t)64 << 20);
    ck_assert_uint_eq(config.divisions[0], 8);
    ck_assert_uint_eq(config.divisions[15], 8);
    ck_assert(config.gc_threshold == 0.8);
    ck_assert(config.per_process_memory_fraction == 0.5);
    ck_assert(config.memory_limit == (uint64_t)3 << 30);
    ck_assert_int_eq(config.fence, AC_FENCE_STREAMS);
    ck_assert_int_eq(config.deepbind, AC_DEEPBIND_KEEP);
    ck_assert_str_eq(config.dump, "/tmp/a:b [%p].json");
    ck_assert_int_eq(config.dump_signal, 1);
    ck_assert(config.dump_interval == 2.5);
    ck_assert_int_eq(config.log_level, 4);
}
END_TEST

/* Expects that both texts give `key` the same value. */
static void same(const char *key, const char *one, const char *other) {
    const char *const texts[] = {one, other};
    char value[2][AC_CONFIG_PATH + 1];
    for (int i = 0; i < 2; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s:%s", key, texts[i]);
        accept(text);
        ac_config_value(&config, key, value[i], sizeof value[i]);
    }
    ck_assert_msg(!strcmp(value[0], value[1]), "%s:%s is %s, %s is %s", key, one, value[0], other,
                  value[1]);
}

START_TEST(one_form_of_units) {
    static const char *const sizes[] = {"8G", "8GB", "8GiB", "8g", "8gb", "8192M", "8192MiB",
                                        "8388608K", "8589934592B", "8589934592"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        same("memory_limit", "8192M", sizes[i]);
        ck_assert(config.memory_limit == (uint64_t)8 << 30);
        same("keep_free", "8192M", sizes[i]);
        same("pinned_cache", "8192M", sizes[i]);
    }
    static const char *const mib_keys[] = {"page_size_mb", "large_segment_size_mb",
                                           "thread_cache_mb", "max_split_size_mb"};
    for (size_t i = 0; i < sizeof mib_keys / sizeof *mib_keys; i++) {
        same(mib_keys[i], "64", "64M");
        same(mib_keys[i], "64", "64MB");
        same(mib_keys[i], "64", "65536KiB");
        same(mib_keys[i], "64", "67108864B");
    }
    same("small_limit", "65536", "64kb");
    same("max_split_size_mb", "2048", "2G");
    same("thread_cache_mb", "0", "0M");
    same("idle_trim_ms", "10000", "10s");
    same("idle_trim_ms", "1500", "1.5s");
    same("idle_trim_ms", "500", "500ms");
    same("idle_trim_ms", "7200000", "2h");
    ck_assert(config.idle_trim_ms == 7200000);
    same("oom_wait", "0.5", "500ms");
    same("oom_wait", "90", "1.5min");
    same("dump_interval", "3600", "1H");
    ck_assert(config.dump_interval == 3600);
    same("dump_signal", "USR1", "SIGUSR1");
    same("dump_signal", "HUP", "sighup");
    static const char *const switches[] = {"enabled", "expandable_segments", "free_sync",
                                           "pinned_cache", "leak_report"};
    static const char *const yes[] = {"True", "TRUE", "1", "yes", "on", "Yes"};
    static const char *const no[] = {"False", "0", "no", "off", "OFF"};
    for (size_t k = 0; k < sizeof switches / sizeof *switches; k++) {
        for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
            same(switches[k], "true", yes[i]);
        for (size_t i = 0; i < sizeof no / sizeof *no; i++)
            same(switches[k], "false", no[i]);
    }
    accept("MEMORY_LIMIT:3g,Enabled:True,fence:Streams");
    ck_assert(config.memory_limit == (uint64_t)3 << 30 && config.enabled);
    ck_assert_int_eq(config.fence, AC_FENCE_STREAMS);
    refuse("memory_limit:3G,MEMORY_LIMIT:4G", 16, "given twice");
    refuse("foo", 0, "unknown key \"foo\"; accelcache config lists the keys");
}
END_TEST

START_TEST(strict_is_found_in_wrong_texts) {
    static const struct {
        const char *text;
        bool strict;
    } cases[] = {{NULL, false},
                 {"", false},
                 {"strict:true", true},
                 {"memory_limit=8G,strict:true", true},
                 {" Strict : yes ,,x", true},
                 {"# a file\nfenze:sync\nstrict:1\n", true},
                 {"strict=true", true},
                 {"strict:maybe", true},
                 {"strict:false,memory_limit=8G", false},
                 {"strict:", true},
                 {"strict", false},
                 {"strictly:true,dump:strict:true", false},
                 {"#strict:true", false},
                 {"#fenze:sync,strict:true", true}},
      files[] = {{"# example: memory_limit:8G, strict:true\nfenze:sync\n", false},
                 {"fence:sync, # or strict:true, x\n\n  # y, strict:true", false},
                 {"# a, b\n #, c\nstrict:true # d\n", true},
                 {"dump:a#b,strict:true\n", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(ac_config_is_strict(cases[i].text, false) == cases[i].strict, "%s", cases[i].text);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        ck_assert_msg(ac_config_is_strict(files[i].text, true) == files[i].strict, "%s", files[i].text);
}
END_TEST

START_TEST(division_lists) {
    static const struct {
        const char *text;
        uint32_t slot[AC_CONFIG_DIVISIONS];
    } cases[] = {
        /* the first key fills below, the last fills above, nothing fills a gap */
        {"[256:1,512:2,1024:4,>:8]", {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8}},
        {"[256:1,512:2,>:8]", {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8, 8, 8, 8, 8}},
        {"[4:2,32:4]", {2, 2, 2, 0, 0, 4}},
        {"[ 1 : 16 , > : 0 ]", {16}},
        {"[32768:4]", {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
        {"[16384:0,>:2]", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}},
        {"1", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128] = "roundup_power2_divisions:";
        strcat(text, cases[i].text);
        accept(text);
        for (int slot = 0; slot < AC_CONFIG_DIVISIONS; slot++)
            ck_assert_msg(config.divisions[slot] == cases[i].slot[slot], "%s: slot %d is %u",
                          text, slot, config.divisions[slot]);
    }
}
END_TEST

START_TEST(refusals) {
    static const struct {
        const char *text;
        size_t position;
        const char *part;
    } cases[] = {
        /* keys */
        {"max_split_sise_mb:40", 0, "\"max_split_size_mb\""},
        {"fence:auto, dmup:x", 12, "\"dump\""},
        {"foo", 0, "unknown key \"foo\""},
        {"fence:auto,fence:ctx", 11, "given twice (first at position 6)"},
        {"backend:native,backend:native", 15, "given twice"},
        /* separators */
        {",", 0, "expected a key, found \",\""},
        {"fence:auto,,", 11, "expected a key"},
        {"fence:auto , , free_sync:true", 13, "expected a key"},
        {":auto", 0, "expected a key"},
        {"fence", 5, "expected : after the key, found the end"},
        {"fence auto", 6, "expected : after the key, found \"a\""},
        {"fence=auto", 5, "write : instead of ="},
        {"fence:", 6, "expected auto, ctx, streams or sync, found the end"},
        {"fence:,", 6, "found \",\""},
        {"fence:auto:ctx", 10, "expected , after the value, found \":\""},
        {"fence:auto]", 10, "expected , after the value"},
        {"roundup_power2_divisions:[1:2]4", 30, "expected , after the value, found \"4\""},
        {"roundup_power2_divisions:[1:2", 29, "expected ] to close the list"},
        {"roundup_power2_divisions:[[1:2]]", 26, "expected ] to close the list"},
        /* numbers */
        {"max_split_size_mb:20x", 18, "expected a size from 2M "},
        {"max_split_size_mb:-1", 18, "got \"-1\""},
        {"max_split_size_mb:+20", 18, "got"},
        {"max_split_size_mb:2 0", 18, "got \"2 0\""},
        {"max_split_size_mb:0x20", 18, "got"},
        {"max_split_size_mb:1", 18, "got"},
        {"max_split_size_mb:2", 18, "at least large_segment_size_mb, which is 20"},
        {"max_split_size_mb:32,large_segment_size_mb:64", 18, "which is 64"},
        {"max_split_size_mb:18446744073709551617", 18, "got"},
        {"max_split_size_mb:none20", 18, "got"},
        {"large_segment_size_mb:none", 22, "got"},
        {"large_segment_size_mb:1025", 22, "from 2M to 1G"},
        {"garbage_collection_threshold:1", 29, "below 1"},
        {"garbage_collection_threshold:1.2", 29, "got \"1.2\""},
        {"garbage_collection_threshold:.5", 29, "got"},
        {"garbage_collection_threshold:0.", 29, "got"},
        {"garbage_collection_threshold:0.5.5", 29, "got"},
        {"garbage_collection_threshold:5e-1", 29, "got"},
        {"garbage_collection_threshold:nan", 29, "got"},
        {"garbage_collection_threshold:0.1234567890123456", 29, "got"},
        {"per_process_memory_fraction:1.01", 28, "from 0 to 1"},
        {"per_process_memory_fraction:-0.5", 28, "got"},
        {"memory_limit:16", 13, "8G, 8GB or 8GiB"},
        {"memory_limit:16GX", 13, "got"},
        {"memory_limit:16iB", 13, "got"},
        {"memory_limit:1024TB1", 13, "got"},
        {"memory_limit:8s", 13, "got"},
        {"page_size_mb:2049K", 13, "a bare number counts MiB"},
        {"page_size_mb:1G", 13, "from 2M to 256M"},
        {"page_size_mb:20000000T", 13, "got"},
        {"large_segment_size_mb:2MiBB", 22, "got"},
        {"idle_trim_ms:0.5", 13, "a bare number counts milliseconds"},
        {"idle_trim_ms:0.0105s", 13, "got"},
        {"idle_trim_ms:25h", 13, "from 10ms to 24h"},
        {"idle_trim_ms:9ms", 13, "got"},
        {"idle_trim_ms:10S1", 13, "got"},
        {"idle_trim_ms:ms", 13, "got"},
        {"idle_trim_ms:10G", 13, "got"},
        {"idle_trim_ms:99999999999999h", 13, "got"},
        {"history:100K", 8, "an integer from 16"},
        {"memory_limit:G", 13, "got"},
        {"memory_limit:1.5G", 13, "got"},
        {"memory_limit:99999999999T", 13, "got"},
        /* values that would be 0, 2M or 4M in 64 bits */
        {"memory_limit:18014398509481984K", 13, "got"},
        {"memory_limit:18014398509484032K", 13, "got"},
        {"memory_limit:17592186044416M", 13, "got"},
        {"memory_limit:17592186044418M", 13, "got"},
        {"memory_limit:17179869184G", 13, "got"},
        {"memory_limit:16777216T", 13, "got"},
        {"keep_free:18014398509481984K", 10, "got"},
        {"keep_free:16777216T", 10, "got"},
        {"pinned_cache:17592186044420M", 13, "got"},
        {"pinned_cache:17179869184G", 13, "got"},
        {"small_limit:18014398509482048K", 12, "got"},
        {"page_size_mb:17592186044418", 13, "got"},
        {"thread_cache_mb:17592186044416", 16, "got"},
        {"large_segment_size_mb:17592186044436", 22, "got"},
        {"max_split_size_mb:17592186044616", 18, "got"},
        {"dump_interval:0.05", 14, "from 100ms"},
        {"dump_interval:50ms", 14, "from 100ms"},
        {"oom_wait:61min", 9, "to 1h"},
        {"dump_interval:604801", 14, "got"},
        /* words */
        {"free_sync:2", 10, "auto, true or false"},
        {"free_sync:yesno", 10, "auto, true or false"},
        {"fence:1", 6, "auto, ctx, streams or sync"},
        {"enabled:01", 8, "true or false"},
        {"deepbind:true", 9, "strip or keep"},
        {"log_level:3", 10, "none, error, warning, info or debug"},
        /* divisions */
        {"roundup_power2_divisions:3", 25, "a power of two"},
        {"roundup_power2_divisions:2048", 25, "a power of two"},
        {"roundup_power2_divisions:[]", 26, "K:N pairs"},
        {"roundup_power2_divisions:[4]", 26, "K:N pairs"},
        {"roundup_power2_divisions:[4:2,]", 30, "K:N pairs"},
        {"roundup_power2_divisions:[3:2]", 26, "K to be a power of two"},
        {"roundup_power2_divisions:[0:2]", 26, "K to be a power of two"},
        {"roundup_power2_divisions:[65536:2]", 26, "K to be a power of two"},
        {"roundup_power2_divisions:[4:3]", 28, "N to be a power of two"},
        {"roundup_power2_divisions:[4:]", 28, "N to be a power of two"},
        {"roundup_power2_divisions:[8:2,4:2]", 30, "sizes in rising order"},
        {"roundup_power2_divisions:[8:2,8:2]", 30, "sizes in rising order"},
        {"roundup_power2_divisions:[>:8]", 26, "a size before >"},
        {"roundup_power2_divisions:[4:2,>:8,16:2]", 34, "must come last"},
        /* paths and signals */
        {"dump:", 5, "a path without commas"},
        {"dump: ,", 6, "a path without commas"},
        {"dump:a%x.json", 6, "after a percent sign"},
        {"dump:a%", 6, "after a percent sign"},
        {"dump_signal:SIGUSR3", 12, "HUP, USR1, USR2"},
        {"dump_signal:SIG", 12, "HUP, USR1, USR2"},
        {"dump_signal:SIG12", 12, "HUP, USR1, USR2"},
        {"dump_signal:9", 12, "HUP, USR1, USR2"},
        {"dump_signal:11", 12, "HUP"},
        {"dump_signal:0", 12, "HUP"},
        {"dump_signal:32", 12, "HUP"},
        {"dump_signal:65", 12, "HUP"},
        /* foreign keys have a grammar, too */
        {"backend:", 8, "expected a value"},
        {"expandable_segments_reserve_by_class:[a:1", 41, "expected ]"},
        {"pinned_num_register_thread:2", 0, "\"pinned_num_register_threads\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].text, cases[i].position, cases[i].part);
}
END_TEST

START_TEST(long_and_odd_texts_stay_in_bounds) {
    char text[4096] = "dump:";
    memset(text + 5, 'x', AC_CONFIG_PATH - 1);
    text[5 + AC_CONFIG_PATH - 1] = '\0';
    accept(text);
    ck_assert_uint_eq(strlen(config.dump), AC_CONFIG_PATH - 1);
    strcat(text, "x");
    refuse(text, 5, "at most 1023 bytes");
    memset(text, 'k', 4000);
    text[4000] = '\0';
    refuse(text, 0, "...");
    refuse("fence:auto[\x1b", 10, "found \"[\"");
    refuse("fence:auto \x1b", 6, "got \"auto ?\"");
    refuse("fence:\xff\x01\x1b", 6, "got \"???\"");
}
END_TEST

/* Expects `part` in the only warning about `text`; NULL: no warning. */
static void warn(const char *text, const char *part) {
    accept(text);
    if (!part) {
        ck_assert_msg(warnings.count == 0, "%s: %s", text, warnings.text[0]);
        return;
    }
    ck_assert_msg(warnings.count == 1, "%s: %u warnings", text, warnings.count);
    ck_assert_msg(strstr(warnings.text[0], part) != NULL, "%s: %s", text, warnings.text[0]);
    ck_assert_msg(strlen(warnings.text[0]) < sizeof warnings.text[0] - 1, "%s: cut", text);
}

START_TEST(warns_of_keys_without_effect) {
    warn("garbage_collection_threshold:0.8", "without memory_limit");
    warn("garbage_collection_threshold:0.8,memory_limit:4G", NULL);
    warn("garbage_collection_threshold:0.8,per_process_memory_fraction:0.9", NULL);
    warn("garbage_collection_threshold:0", NULL);
    warn("fence:ctx,free_sync:true", "fence has no effect with free_sync:true");
    warn("fence:ctx,free_sync:false", NULL);
    warn("dump_signal:USR1,dump:none", "dump_signal has no effect with dump:none");
    warn("dump_interval:5,dump:none", "dump_interval has no effect with dump:none");
    warn("dump_signal:none,dump_interval:0,dump:none", NULL);
    warn("dump_signal:USR1", NULL);
    warn("enabled:false,max_split_size_mb:64", "max_split_size_mb has no effect with enabled");
    warn("enabled:false,dump:x.json,log_level:info", NULL);
    warn("page_size_mb:2", "page_size_mb has no effect without expandable_segments:true");
    warn("page_budget:0.1", "page_budget has no effect without expandable_segments:true");
    warn("expandable_segments:true,page_size_mb:2,page_budget:0.02", NULL);
    warn("expandable_segments:true,page_size_mb:2,low_memory:true", "with low_memory:true");
    warn("expandable_segments:true,max_split_size_mb:64", "max_split_size_mb has no effect");
    warn("expandable_segments:true,max_split_size_mb:none", NULL);
}
END_TEST

START_TEST(foreign_keys_warn_and_never_fail) {
    warn("backend:native", NULL);
    warn("backend:cudaMallocAsync", "backend:cudaMallocAsync has no effect");
    warn("backend:what", "backend:what has no effect");
    warn("expandable_segments:False", NULL);
    warn("expandable_segments:True", NULL);
    warn("expandable_segments_reserve:40G", "no effect");
    warn("expandable_segments_reserve_by_class:[a:1,b:2G]", "no effect");
    warn("pinned_use_cuda_host_register:True", "no effect");
    warn("max_non_split_rounding_mb:64", "no effect");
    /* every foreign row, so that none is cut short */
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        char text[128];
        if (!ac_config_rows[i].foreign)
            continue;
        snprintf(text, sizeof text, "%s:something_else", ac_config_rows[i].key);
        warn(text, ac_config_rows[i].key);
    }
    /* more warnings than places: the last place counts them */
    accept("enabled:false,max_split_size_mb:64,large_segment_size_mb:20,fence:ctx,free_sync:true,"
           "memory_limit:2G,backend:x,pinned_free_catch_all:x,pinned_max_cached_size_mb:x,"
           "throw_on_cudamalloc_oom:x,max_non_split_rounding_mb:1,release_lock_on_cudamalloc:x");
    ck_assert_uint_eq(warnings.count, AC_CONFIG_WARNINGS);
    ck_assert_str_eq(warnings.text[AC_CONFIG_WARNINGS - 1],
                     "and 4 more such keys of the configuration");
}
END_TEST

static const char *const valid[] = {
    "enabled:false",
    "async_ipc:true",
    "control:true",
    "max_split_size_mb:20",
    "max_split_size_mb:none",
    "large_segment_size_mb:1024",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "roundup_power2_divisions:[4:2,32:4]",
    "roundup_power2_divisions:[1:0,2:8,>:0]",
    "roundup_power2_divisions:[16384:2,>:0]",
    "roundup_power2_divisions:[16384:0,>:1]",
    "roundup_power2_divisions:[1:2,4:2,>:2]",
    "garbage_collection_threshold:0.8",
    "garbage_collection_threshold:0.000000000000001",
    "per_process_memory_fraction:0.333333333333333",
    "per_process_memory_fraction:0",
    "memory_limit:0",
    "memory_limit:2M",
    "memory_limit:1024T",
    "memory_limit:3000001",
    "memory_limit:3000K",
    "idle_trim_ms:10000",
    "history:1000",
    "stacks:all",
    "stacks:sampled",
    "strict:true",
    "pinned_cache:true",
    "pinned_cache:64M",
    "keep_free:1G",
    "trace:/x/%p.trace",
    "free_sync:true",
    "fence:sync",
    "ipc:native",
    "ipc:off",
    "deepbind:keep",
    "dump:none",
    "dump:/x:y/%h-%r-%e-%%.json",
    "dump_signal:none",
    "dump_signal:USR1",
    "dump_signal:40",
    "dump_signal:15",
    "control:true",
    "dump_interval:0.1",
    "dump_interval:604800",
    "dump_interval:86399.999",
    "log_level:none",
};
enum { VALID = sizeof valid / sizeof *valid };

/* Writes every key of `config` and reads it back. */
static void check_round_trip(const char *origin) {
    char text[4096] = "";
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        char value[AC_CONFIG_PATH + 1];
        const char *key = ac_config_rows[i].key;
        int n = ac_config_value(&config, key, value, sizeof value);
        if (ac_config_rows[i].foreign) {
            ck_assert_int_eq(n, -1);
            continue;
        }
        ck_assert_int_eq(n, (int)strlen(value));
        if (*text)
            strcat(text, ",");
        strcat(strcat(strcat(text, key), ":"), value);
    }
    ac_config_t again;
    memset(&again, 0x5a, sizeof again);
    ck_assert_msg(ac_config_parse(text, &again, &error, NULL) == 0, "%s -> %s: %s", origin, text,
                  error.text);
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        char a[AC_CONFIG_PATH + 1], b[AC_CONFIG_PATH + 1];
        if (ac_config_rows[i].foreign)
            continue;
        ac_config_value(&config, ac_config_rows[i].key, a, sizeof a);
        ac_config_value(&again, ac_config_rows[i].key, b, sizeof b);
        ck_assert_str_eq(a, b);
    }
    ck_assert_msg(memcmp(again.divisions, config.divisions, sizeof config.divisions) == 0 &&
                      again.max_split_size == config.max_split_size &&
                      again.memory_limit == config.memory_limit &&
                      again.gc_threshold == config.gc_threshold &&
                      again.per_process_memory_fraction == config.per_process_memory_fraction &&
                      again.dump_interval == config.dump_interval &&
                      again.dump_signal == config.dump_signal,
                  "%s -> %s", origin, text);
}

START_TEST(values_round_trip) {
    char value[64];
    ac_config_default(&config);
    check_round_trip("defaults");
    /* the table's default column is what the parser's defaults print */
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        if (ac_config_rows[i].foreign)
            continue;
        ck_assert_int_ge(ac_config_value(&config, ac_config_rows[i].key, value, sizeof value), 0);
        ck_assert_str_eq(value, ac_config_rows[i].default_text);
    }
    for (int i = 0; i < VALID; i++) {
        accept(valid[i]);
        check_round_trip(valid[i]);
    }
    ck_assert_int_eq(ac_config_value(&config, "no_such_key", value, sizeof value), -1);
    ck_assert_int_eq(ac_config_value(&config, "backend", value, sizeof value), -1);
    /* every pattern of slots with the values 0 and 2 */
    for (unsigned bits = 0; bits < 1u << AC_CONFIG_DIVISIONS; bits += 7) {
        ac_config_default(&config);
        for (int slot = 0; slot < AC_CONFIG_DIVISIONS; slot++)
            config.divisions[slot] = bits >> slot & 1 ? 2 : 0;
        check_round_trip("slots");
    }
    /* a short buffer: the text is cut and terminated, and the full length returned */
    accept("roundup_power2_divisions:[4:2,32:4]");
    char whole[256], part[8];
    int length = ac_config_value(&config, "roundup_power2_divisions", whole, sizeof whole);
    ck_assert_int_eq(ac_config_value(&config, "roundup_power2_divisions", part, sizeof part),
                     length);
    ck_assert_uint_lt(strlen(part), sizeof part);
}
END_TEST

/* Returns true if a running cache with the settings `now` accepts `text`. *out: the resulting
 * settings. */
static bool takes(const char *text, const ac_config_t *now, ac_config_t *out) {
    ck_assert_int_eq(ac_config_parse(text, out, &error, NULL), 0);
    return ac_config_keep_fixed(out, now, &error);
}

START_TEST(a_running_cache_keeps_fixed_keys) {
    ac_config_t usual, set, out;
    char had[AC_CONFIG_PATH + 1], has[AC_CONFIG_PATH + 1];
    ac_config_default(&usual);
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        const ac_config_row_t *row = &ac_config_rows[i];
        bool fixed = row->trait == AC_TRAIT_FIXED, tried = false;
        for (int k = 0; k < VALID; k++) {
            size_t length = strcspn(valid[k], ":");
            ck_assert_int_eq(ac_config_parse(valid[k], &set, &error, NULL), 0);
            if (row->foreign || length != strlen(row->key) || memcmp(valid[k], row->key, length))
                continue;
            ac_config_value(&usual, row->key, has, sizeof has);
            ac_config_value(&set, row->key, had, sizeof had);
            if (!strcmp(has, had))
                continue;
            tried = true;
            ck_assert_msg(takes(valid[k], &usual, &out) == !fixed, "%s", valid[k]);
            ck_assert_msg(!fixed || !strncmp(error.text, valid[k], length), "%s", error.text);
            ck_assert_msg(takes(valid[k], &set, &out), "%s: what it is", valid[k]);
            ck_assert_msg(takes("", &set, &out), "%s: absent", valid[k]);
            ac_config_value(&out, row->key, has, sizeof has);
            ck_assert_msg(!strcmp(has, had) == fixed, "%s: %s", valid[k], has);
        }
        ck_assert_msg(tried || !fixed, "%s: no value to try", row->key);
    }
}
END_TEST

static char whole[512];

static const char *merged(const char *file, const char *text) {
    ac_config_error_t error;
    ck_assert_msg(ac_config_merge(file, text, whole, sizeof whole, &error, NULL) == 0, "%s",
                  error.text);
    return whole;
}

/* Defaults from a file, below a string. */
START_TEST(files_fill_in_what_a_string_does_not_give) {
    ac_config_error_t error;
    ck_assert_str_eq(merged("", NULL), "");
    ck_assert_str_eq(merged("# nothing\n\n #\n", "fence:ctx"), "fence:ctx");
    ck_assert_str_eq(merged("fence:sync\nidle_trim_ms :\t10\n", NULL),
                     "idle_trim_ms:10,fence:sync,");
    ck_assert_str_eq(merged("fence:sync,idle_trim_ms:10,\n", "fence:auto"),
                     "idle_trim_ms:10,fence:auto");
    /* a wrong string adds nothing to the file's keys, and stays */
    ck_assert_str_eq(merged("fence:sync", "fence:auto,x"), "fence:sync,fence:auto,x");
    ck_assert_str_eq(merged("dump:/a b\n#\ntrace:/c", NULL), "dump:/a b,trace:/c,");
    ck_assert_str_eq(merged("roundup_power2_divisions:[256:1,\n>:8]\nbackend:native", NULL),
                     "roundup_power2_divisions:[256:1,>:8],");
    static const struct {
        const char *file, *error;
    } wrong[] = {
        {"\n#\nfenze:sync", "line 3: unknown key \"fenze\""},
        {"fence:sync fill:nan", "line 1: key \"fence\": expected auto"},
        {"fence:sync # no", "line 1: key \"fence\""},
        {"fence:\nsync",
         "line 1: key \"fence\": expected auto, ctx, streams or sync, found the end of the line"},
        {"fence:sync\n,fill:nan", "line 2: expected a key"},
        {"fence:sync\nfence:sync", "line 2: key \"fence\": given twice (first at line 1)"},
        {"\ndeepbind:keep", "line 2: key \"deepbind\": a file is read too late"},
        {"max_split_size_mb:2", "line 1: key \"max_split_size_mb\""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(ac_config_merge(wrong[i].file, "", whole, sizeof whole, &error, NULL), -1);
        ck_assert_msg(strstr(error.text, wrong[i].error) == error.text, "%s", error.text);
    }
    /* every size of buffer: the whole text, or an error */
    static const char file[] = "fence:sync\ntrace:/a", text[] = "fill:nan";
    size_t length = strlen(merged(file, text));
    for (size_t size = 1; size <= length + 1; size++) {
        memset(whole, 'x', sizeof whole);
        int result = ac_config_merge(file, text, whole, size, &error, NULL);
        ck_assert_int_eq(result, size > length ? 0 : -1);
        ck_assert_int_eq(whole[size], 'x');
        if (result)
            ck_assert_ptr_nonnull(strstr(error.text, "too long"));
    }
}
END_TEST

START_TEST(rows_are_documented) {
    for (unsigned i = 0; i < ac_config_row_count; i++) {
        const ac_config_row_t *row = &ac_config_rows[i];
        ck_assert_msg(*row->type && *row->range && strlen(row->doc) > 20, "%s", row->key);
    }
}
END_TEST

static uint64_t next_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Strings near the grammar. Parsing ends and reports a place inside the string. It either gives values
 * that survive a round trip, or leaves the configuration unchanged. */
START_TEST(mutations) {
    static const char alphabet[] = "0123456789,,::[]>. %pKMGTabdeflnorstuxyz_-\t\xff";
    uint64_t state = 0x9e3779b97f4a7c15u + (uint64_t)_i;
    unsigned accepted = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        char text[512] = "";
        for (uint64_t parts = 1 + next_random(&state) % 3; parts; parts--) {
            strcat(text, valid[next_random(&state) % VALID]);
            if (parts > 1)
                strcat(text, ",");
        }
        for (uint64_t edits = next_random(&state) % 4; edits; edits--) {
            size_t length = strlen(text), at = next_random(&state) % (length + 1);
            char c = alphabet[next_random(&state) % (sizeof alphabet - 1)];
            switch (next_random(&state) % 3) {
            case 0:
                if (at < length)
                    text[at] = c;
                break;
            case 1:
                memmove(text + at + 1, text + at, length - at + 1);
                text[at] = c;
                break;
            default:
                if (at < length)
                    memmove(text + at, text + at + 1, length - at);
            }
        }
        ac_config_t before;
        memset(&config, 0x5a, sizeof config);
        before = config;
        /* an exact copy, so that a sanitizer sees any read past its end */
        char *exact = strdup(text);
        int result = ac_config_parse(exact, &config, &error, &warnings);
        free(exact);
        if (result == 0) {
            accepted++;
            ck_assert_msg(error.text[0] == '\0', "%s", text);
            ck_assert_uint_le(warnings.count, AC_CONFIG_WARNINGS);
            check_round_trip(text);
        } else {
            refused++;
            ck_assert_int_eq(result, -1);
            ck_assert_msg(memcmp(&before, &config, sizeof config) == 0, "%s", text);
            ck_assert_msg(error.position <= strlen(text) && error.text[0], "%s", text);
        }
    }
    ck_assert_uint_gt(accepted, 1000);
    ck_assert_uint_gt(refused, 1000);
}
END_TEST

/* A parser's memory comes from the system. If there is none, parsing fails and changes nothing. */
START_TEST(host_memory_is_short) {
    struct rlimit space, none;
    char whole[64];
    void *spare = ac_scratch_take(); /* the piece that is cached for the next use */
    ck_assert_ptr_nonnull(spare);
    accept("fence:sync");
    void *second = ac_scratch_take();
    ck_assert(second && second != spare);
    ac_config_t before = config, wanted = config;
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &space), 0);
    none = (struct rlimit){4096, space.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
    errno = 1;
    int parsed = ac_config_parse("fence:ctx", &config, &error, &warnings), kept = errno;
    bool said = !strcmp(error.text, "host memory is short");
    int merged = ac_config_merge("", "fence:ctx", whole, sizeof whole, &error, NULL);
    bool fixed = ac_config_keep_fixed(&wanted, &config, &error);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &space), 0);
    ck_assert(parsed == -1 && said && merged == -1 && !fixed);
    ck_assert_int_eq(kept, 1);
    ck_assert_mem_eq(&before, &config, sizeof config);
    ac_scratch_give(spare);
    ac_scratch_give(second);
    ac_scratch_give(NULL);
    ck_assert_ptr_eq(ac_scratch_take(), second);
    accept("fence:ctx");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config");
    TCase *cases = tcase_create("config");
    tcase_add_test(cases, defaults);
    tcase_add_test(cases, every_key);
    tcase_add_test(cases, one_form_of_units);
    tcase_add_test(cases, strict_is_found_in_wrong_texts);
    tcase_add_test(cases, division_lists);
    tcase_add_test(cases, refusals);
    tcase_add_test(cases, long_and_odd_texts_stay_in_bounds);
    tcase_add_test(cases, warns_of_keys_without_effect);
    tcase_add_test(cases, foreign_keys_warn_and_never_fail);
    tcase_add_test(cases, values_round_trip);
    tcase_add_test(cases, a_running_cache_keeps_fixed_keys);
    tcase_add_test(cases, files_fill_in_what_a_string_does_not_give);
    tcase_add_test(cases, rows_are_documented);
    tcase_add_test(cases, host_memory_is_short);
    tcase_add_loop_test(cases, mutations, 0, 3);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
