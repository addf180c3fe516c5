/* IPC handles of this library (share/ipc_token.h), the exporter's table, and other processes'
 * reads of it. */
#include "live_frame.h"

#include "observe/live_file.h"
#include "share/ipc_lookup.h"
#include "run_suite.h"

/* A second implementation from the definition: CRC-32C of "123456789" is e3069283. */
static uint32_t castagnoli(const unsigned char *bytes, size_t count, uint32_t sum) {
    for (size_t i = 0; i < 8 * count; i++) {
        uint32_t bit = (sum ^ bytes[i / 8] >> i % 8) & 1;
        sum = sum >> 1 ^ (bit ? 0x82f63b78u : 0);
    }
    return sum;
}

static void seal(unsigned char *bytes) {
    uint32_t sum = castagnoli(bytes, 40, UINT32_MAX);
    sum = ~castagnoli(bytes + 44, 20, sum);
    memcpy(bytes + 40, &sum, sizeof sum);
}

static const ac_ipc_token_t some = {.kind = AC_IPC_NATIVE,
                                    .pid = 4321,
                                    .space = 4026531836u,
                                    .slot = 77,
                                    .nonce = 0x0123456789abcdef,
                                    .serial = 99};

START_TEST(token_says_what_was_written) {
    unsigned char bytes[AC_IPC_TOKEN], again[AC_IPC_TOKEN];
    ac_ipc_token_t token;
    ac_ipc_token_write(&some, bytes);
    ck_assert_int_eq(ac_ipc_token_read(bytes, &token), AC_IPC_OURS);
    ck_assert(token.kind == some.kind && token.pid == some.pid && token.space == some.space);
    ck_assert(token.slot == some.slot && token.nonce == some.nonce);
    ck_assert(token.serial == some.serial && !token.stray[0]);
    ac_ipc_token_write(&token, again);
    ck_assert_mem_eq(bytes, again, sizeof bytes);
    seal(again);
    ck_assert_mem_eq(bytes, again, sizeof bytes);
    ck_assert_uint_eq(~castagnoli((const unsigned char *)"123456789", 9, UINT32_MAX), 0xe3069283);
}
END_TEST

START_TEST(other_bytes_are_no_token) {
    unsigned char bytes[AC_IPC_TOKEN];
    ac_ipc_token_t token;
    ac_ipc_token_write(&some, bytes);
    for (unsigned bit = 0; bit < 8 * AC_IPC_TOKEN; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert_int_eq(ac_ipc_token_read(bytes, &token), AC_IPC_FOREIGN);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    ck_assert_int_eq(ac_ipc_token_read(bytes, &token), AC_IPC_OURS);
    for (int value = 0; value < 256; value += 255) {
        memset(bytes, value, sizeof bytes);
        ck_assert_int_eq(ac_ipc_token_read(bytes, &token), AC_IPC_FOREIGN);
    }
}
END_TEST

/* The checksum is right, but this version does not make such contents. */
START_TEST(token_of_another_version) {
    static const struct {
        unsigned at, value;
        ac_ipc_origin_t origin;
    } bent[] = {{9, AC_IPC_VERSION + 1, AC_IPC_NEWER},
                {9, 200, AC_IPC_NEWER},
                {9, 0, AC_IPC_FOREIGN},
                {8, 9, AC_IPC_FOREIGN},
                {15, 0x80, AC_IPC_FOREIGN},
                {44, '/', AC_IPC_FOREIGN},
                {44, '.', AC_IPC_FOREIGN},
                {44, 'a', AC_IPC_FOREIGN}};
    for (unsigned i = 0; i < sizeof bent / sizeof *bent; i++) {
        unsigned char bytes[AC_IPC_TOKEN];
        ac_ipc_token_t token;
        ac_ipc_token_write(&some, bytes);
        bytes[bent[i].at] = (unsigned char)bent[i].value;
        seal(bytes);
        ck_assert_msg(ac_ipc_token_read(bytes, &token) == bent[i].origin, "row %u", i);
    }
}
END_TEST

/* ---- the table ---- */

static void open_page(void) {
    ck_assert_int_eq(ac_live_open(NULL, hooks, sizeof hooks, HOOKS), 0);
}

static ac_ipc_entry_t entry_at(uint64_t offset) {
    ac_ipc_entry_t entry = {.offset = offset, .size = 1000, .mapping = 2 << 20};
    memset(entry.handle, 'h', sizeof entry.handle);
    return entry;
}

/* Exports a block and returns its token. */
static ac_ipc_token_t exported(uint64_t offset, uint64_t serial, uint32_t *slot) {
    unsigned char bytes[AC_IPC_TOKEN];
    ac_ipc_token_t token;
    ac_ipc_entry_t entry = entry_at(offset);
    ck_assert_int_eq(ac_ipc_table_reserve(slot), 0);
    ac_ipc_table_fill(*slot, &entry);
    ac_ipc_table_publish(*slot, serial);
    ac_ipc_table_token(AC_IPC_NATIVE, *slot, serial, bytes);
    ck_assert_int_eq(ac_ipc_token_read(bytes, &token), AC_IPC_OURS);
    return token;
}

static ac_ipc_answer_t look(const ac_ipc_token_t *token, ac_ipc_entry_t *entry) {
    ac_ipc_source_t source;
    ac_ipc_answer_t answer = ac_ipc_lookup(token, &source, entry);
    if (answer == AC_IPC_FOUND)
        ac_ipc_lookup_end(&source, token, false);
    return answer;
}

static const char *table_name(void) {
    static char name[300];
    snprintf(name, sizeof name, "%s.ipc", page_name((int)getpid()));
    return name;
}

START_TEST(entries_are_found_until_they_end) {
    ac_ipc_entry_t entry;
    ac_ipc_source_t source;
    uint32_t slot, other;
    struct stat st;
    open_page();
    ck_assert_int_ne(stat(table_name(), &st), 0); /* there is no table before the first export */
    ac_ipc_token_t first = exported(512, 1, &slot), second = exported(4096, 2, &other);
    ck_assert_uint_ne(slot, other);
    ck_assert_int_eq(look(&first, &entry), AC_IPC_FOUND);
    ck_assert(entry.offset == 512 && entry.size == 1000 && entry.handle[63] == 'h');
    ck_assert_int_eq(look(&second, &entry), AC_IPC_FOUND);
    ck_assert_uint_eq(entry.offset, 4096);
    ck_assert_int_eq(ac_ipc_lookup(&first, &source, &entry), AC_IPC_FOUND);
    ck_assert(ac_ipc_lookup_again(&source, &first));
    ac_ipc_table_publish(slot, 0);
    ck_assert(!ac_ipc_lookup_again(&source, &first));
    ac_ipc_lookup_end(&source, &first, true);
    ck_assert_int_eq(look(&first, &entry), AC_IPC_FREED);
    ac_ipc_token_t third = exported(8192, 3, &other);
    ck_assert_uint_eq(other, slot); /* reused: the first token no longer matches */
    ck_assert_int_eq(look(&first, &entry), AC_IPC_FREED);
    ck_assert_int_eq(look(&third, &entry), AC_IPC_FOUND);
    ck_assert(ac_ipc_table_find(&third, &entry) && entry.serial == 3);
    third.nonce++;
    ck_assert(!ac_ipc_table_find(&third, &entry));
    ck_assert_int_eq(look(&third, &entry), AC_IPC_ENDED);
    ck_assert(stat(table_name(), &st) == 0 && (st.st_mode & 0777) == 0600);
    ac_ipc_table_close();
    ck_assert_int_ne(stat(table_name(), &st), 0);
}
END_TEST

START_TEST(table_grows) {
    enum { COUNT = 3 * AC_IPC_SLOTS };
    static ac_ipc_token_t token[COUNT];
    static uint32_t slot[COUNT];
    ac_ipc_entry_t entry;
    open_page();
    for (uint64_t i = 0; i < COUNT; i++)
        token[i] = exported(512 * i, i + 1, &slot[i]);
    for (uint64_t i = 0; i < COUNT; i++) {
        ck_assert_int_eq(look(&token[i], &entry), AC_IPC_FOUND);
        ck_assert_uint_eq(entry.offset, 512 * i);
    }
    ac_ipc_table_close();
}
END_TEST

/* An earlier process with this pid left a file, or the file is no table. */
START_TEST(stale_file_is_replaced) {
    ac_ipc_entry_t entry;
    uint32_t slot;
    open_page();
    if (_i == 0)
        ck_assert_int_eq(mkfifo(table_name(), 0600), 0);
    else if (_i == 1)
        ck_assert_int_eq(symlink("/dev/zero", table_name()), 0);
    else
        close(open(table_name(), O_CREAT | O_WRONLY, 0600));
    ac_ipc_token_t token = exported(512, 1, &slot);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_FOUND);
    ac_ipc_table_close();
}
END_TEST

/* Another process changes the file arbitrarily. Each change gives an error. */
START_TEST(spoilt_table_is_an_error) {
    static const struct {
        off_t at;
        unsigned char value;
        ac_ipc_answer_t answer;
    } bent[] = {{0, 0, AC_IPC_BAD},
                {offsetof(ac_ipc_header_t, version), AC_IPC_TABLE_VERSION + 1, AC_IPC_BAD},
                {offsetof(ac_ipc_header_t, entry), 100, AC_IPC_BAD},
                {192 + offsetof(ac_ipc_entry_t, serial), 9, AC_IPC_FREED},
                {192 + offsetof(ac_ipc_entry_t, offset) + 7, 0xff, AC_IPC_BAD},
                {192 + offsetof(ac_ipc_entry_t, size) + 4, 1, AC_IPC_BAD},
                {192 + offsetof(ac_ipc_entry_t, mapping) + 2, 0, AC_IPC_BAD}};
    ac_ipc_entry_t entry;
    uint32_t slot;
    open_page();
    ac_ipc_token_t token = exported(512, 1, &slot);
    int fd = open(table_name(), O_RDWR);
    for (unsigned i = 0; i < sizeof bent / sizeof *bent; i++) {
        unsigned char before;
        ck_assert_int_eq(pread(fd, &before, 1, bent[i].at), 1);
        ck_assert_int_eq(pwrite(fd, &bent[i].value, 1, bent[i].at), 1);
        ck_assert_msg(look(&token, &entry) == bent[i].answer, "row %u", i);
        ck_assert_int_eq(pwrite(fd, &before, 1, bent[i].at), 1);
    }
    ck_assert_int_eq(look(&token, &entry), AC_IPC_FOUND);
    token.slot = 5000; /* past the end */
    ck_assert_int_eq(look(&token, &entry), AC_IPC_BAD);
    token.slot = 0;
    ck_assert_int_eq(look(&token, &entry), AC_IPC_BAD);
    token.slot = slot;
    ck_assert_int_eq(ftruncate(fd, 200), 0);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_BAD);
    close(fd);
    ck_assert_int_eq(unlink(table_name()), 0);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_ENDED); /* the live page has no table with it */
    ck_assert_int_eq(rename(page_name((int)getpid()), table_name()), 0);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_BAD);
    ck_assert_int_eq(unlink(table_name()), 0);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_HIDDEN); /* the table may be in another folder */
    ck_assert_int_eq(mkfifo(table_name(), 0600), 0);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_BAD); /* does not wait for a writer */
    token.pid = INT32_MAX;
    ck_assert_int_eq(look(&token, &entry), AC_IPC_ENDED);
    token.space++;
    ck_assert_int_eq(look(&token, &entry), AC_IPC_HIDDEN);
    unlink(table_name());
}
END_TEST

START_TEST(no_room_is_an_error) {
    uint32_t slot;
    char folder[256];
    snprintf(folder, sizeof folder, "%s", getenv("ACCEL_LIVE_DIR"));
    unsetenv("ACCEL_LIVE_DIR");
    ck_assert_int_eq(ac_ipc_table_reserve(&slot), ENOENT); /* no live page in the default folder */
    setenv("ACCEL_LIVE_DIR", folder, 1);
    open_page();
    struct rlimit limit = {AC_IPC_CHUNK, AC_IPC_CHUNK}; /* the limit also raises a signal */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 1; i < AC_IPC_SLOTS; i++)
        ck_assert_int_eq(ac_ipc_table_reserve(&slot), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(ac_ipc_table_reserve(&slot), EFBIG);
    ac_ipc_table_publish(7, 0);
    ck_assert_int_eq(ac_ipc_table_reserve(&slot), 0);
    ck_assert_uint_eq(slot, 7);
    ac_ipc_table_close();
}
END_TEST

static void other_name(char name[128], uint64_t space, int pid, const char *end) {
    snprintf(name, 128, "%s/accelcache-%u/%llu-%d.%s", AC_LIVE_DIR, (unsigned)geteuid(),
             (unsigned long long)space, pid, end);
}

/* If the configured folder has no live page, the default folder serves. */
START_TEST(another_home_serves) {
    ac_ipc_entry_t entry;
    uint32_t slot;
    char name[128];
    other_name(name, ac_live_space(), (int)getpid(), "ipc");
    ac_ipc_token_t token = exported(512, 1, &slot);
    ck_assert_int_eq(access(name, R_OK), 0);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_FOUND);
    ac_ipc_table_close();
    ck_assert_int_ne(access(name, R_OK), 0);
}
END_TEST

/* Files of a killed process are removed by the next process that needs the folder. */
START_TEST(another_home_is_tidied) {
    char table[128], socket[128], living[128], elsewhere[128];
    uint32_t slot;
    int channel[2];
    char byte = 0;
    ck_assert_int_eq(pipe(channel), 0);
    pid_t child = fork();
    if (child == 0) {
        exported(512, 1, &slot);
        other_name(socket, ac_live_space(), (int)getpid(), "sock");
        close(open(socket, O_CREAT | O_WRONLY, 0600));
        if (write(channel[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    ck_assert_int_eq(read(channel[0], &byte, 1), 1);
    other_name(table, ac_live_space(), (int)child, "ipc");
    other_name(socket, ac_live_space(), (int)child, "sock");
    other_name(living, ac_live_space(), (int)getppid(), "sock");
    other_name(elsewhere, 1, (int)child, "ipc"); /* of a namespace that no longer exists */
    close(open(living, O_CREAT | O_WRONLY, 0600));
    close(open(elsewhere, O_CREAT | O_WRONLY, 0600));
    kill(child, SIGKILL);
    wait_for(child);
    bool left = exists(table) && exists(socket) && exists(elsewhere);
    exported(512, 1, &slot);
    bool kept = exists(living);
    unlink(living);
    ac_ipc_table_close();
    ck_assert(left && kept && !exists(table) && !exists(socket) && !exists(elsewhere));
}
END_TEST

/* A fork child has no table, and does not remove its parent's at exit. */
START_TEST(fork_child_has_none) {
    ac_ipc_entry_t entry;
    uint32_t slot;
    int status;
    open_page();
    ac_ipc_token_t token = exported(512, 1, &slot);
    pid_t child = fork();
    if (child == 0) {
        ac_ipc_table_fork_child();
        ac_live_fork_child();
        ac_ipc_table_publish(slot, 0);
        ac_ipc_table_close();
        _exit(ac_ipc_table_find(&token, &entry) || ac_ipc_table_reserve(&slot) != ENOENT);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_FOUND);
    child = fork(); /* without fork handlers */
    if (child == 0) {
        ac_ipc_table_close();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_FOUND);
    ac_ipc_table_close();
}
END_TEST

/* Returns the token of a block whose exporting process was killed. */
static ac_ipc_token_t of_killed(char *name, size_t size, bool alive_too) {
    ac_ipc_entry_t entry;
    ac_ipc_source_t source;
    ac_ipc_token_t token;
    int channel[2];
    ck_assert_int_eq(pipe(channel), 0);
    pid_t child = fork();
    if (child == 0) {
        uint32_t slot;
        ac_live_open(NULL, hooks, sizeof hooks, HOOKS);
        token = exported(512, 1, &slot);
        if (write(channel[1], &token, sizeof token) == sizeof token)
            pause();
        _exit(1);
    }
    ck_assert_int_eq(read(channel[0], &token, sizeof token), sizeof token);
    snprintf(name, size, "%s.ipc", page_name((int)child));
    if (alive_too) {
        ck_assert_int_eq(ac_ipc_lookup(&token, &source, &entry), AC_IPC_FOUND);
        ac_ipc_lookup_end(&source, &token, true);
    }
    ck_assert(exists(name));
    kill(child, SIGKILL);
    wait_for(child);
    return token;
}

/* A killed process's table is removed by the importer that finds it, or together with its live
 * page. */
START_TEST(table_of_the_dead_goes) {
    ac_ipc_entry_t entry;
    ac_ipc_source_t source;
    char name[300];
    ac_ipc_token_t token = of_killed(name, sizeof name, true);
    ck_assert_int_eq(ac_ipc_lookup(&token, &source, &entry), AC_IPC_FOUND);
    ac_ipc_lookup_end(&source, &token, true);
    ck_assert(!exists(name));
    ck_assert_int_eq(look(&token, &entry), AC_IPC_ENDED);
    token = of_killed(name, sizeof name, false);
    ck_assert_int_eq(remove_page(token.pid), 0);
    ck_assert(!exists(name));
}
END_TEST

/* An importer holds the table of an earlier process with this pid. It must not remove the current
 * one. */
START_TEST(table_of_the_living_stays) {
    ac_ipc_entry_t entry;
    ac_ipc_source_t source;
    uint32_t slot;
    char kept[320];
    open_page();
    ac_ipc_token_t token = exported(512, 1, &slot);
    snprintf(kept, sizeof kept, "%s.kept", table_name());
    int fd = open(kept, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_eq(ac_ipc_lookup(&token, &source, &entry), AC_IPC_FOUND);
    close(source.fd); /* a file in the table's place that no process has mapped */
    ac_ipc_header_t header = {.magic = AC_IPC_TABLE_MAGIC, .opened_ns = 1};
    ck_assert_int_eq(write(fd, &header, sizeof header), sizeof header);
    close(fd);
    source.fd = open(kept, O_RDONLY);
    ac_ipc_lookup_end(&source, &token, true);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_FOUND);
    ac_ipc_table_close();
}
END_TEST

/* The process exports nothing, so it would otherwise leave the old table behind permanently. */
START_TEST(page_replaces_table_too) {
    char name[300];
    strcpy(name, table_name());
    make_home();
    close(open(name, O_CREAT | O_WRONLY, 0600));
    close(open(page_name((int)getpid()), O_CREAT | O_WRONLY, 0600));
    open_page();
    ck_assert(!exists(name));
}
END_TEST

/* A process in a container with the same pid namespace has its own folder of this name. */
START_TEST(folder_of_a_container_is_found) {
    ac_ipc_entry_t entry;
    ac_ipc_token_t token;
    int channel[2];
    ck_assert_int_eq(pipe(channel), 0);
    pid_t child = fork();
    if (child == 0) {
        uint32_t slot;
        if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("tmpfs", dir, "tmpfs", 0, NULL) != 0)
            _exit(77); /* not permitted here */
        ac_live_open(NULL, hooks, sizeof hooks, HOOKS);
        token = exported(512, 1, &slot);
        if (write(channel[1], &token, sizeof token) == sizeof token)
            pause();
        _exit(1);
    }
    close(channel[1]);
    bool made = read(channel[0], &token, sizeof token) == sizeof token;
    if (made) {
        ck_assert(!exists(home));
        ck_assert_int_eq(look(&token, &entry), AC_IPC_FOUND);
        kill(child, SIGKILL);
    }
    int status = wait_for(child);
    ck_assert(made || (WIFEXITED(status) && WEXITSTATUS(status) == 77));
}
END_TEST

/* The name of the user's folder is taken. The token says which folder has the table. */
START_TEST(stray_folder_is_found) {
    ac_ipc_entry_t entry;
    uint32_t slot;
    close(open(home, O_CREAT | O_WRONLY, 0600));
    open_page();
    ck_assert(ac_live_strayed);
    ac_ipc_token_t token = exported(512, 1, &slot);
    ck_assert_uint_eq(strlen(token.stray), AC_IPC_STRAY);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_FOUND);
    token.stray[0] ^= 1;
    ck_assert_int_ne(look(&token, &entry), AC_IPC_FOUND);
    ac_ipc_table_close();
    ac_live_close();
}
END_TEST

/* The second folder has no room for the page. The token uses the other home and names no
 * folder. */
START_TEST(stray_folder_without_page) {
    struct rlimit limit, small;
    ac_ipc_entry_t entry;
    uint32_t slot;
    close(open(home, O_CREAT | O_WRONLY, 0600));
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){4096, limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    ck_assert_int_eq(ac_live_open(NULL, hooks, sizeof hooks, HOOKS), EFBIG);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert(!ac_live_strayed);
    ck_assert(remove(home) == 0 && rmdir(dir) == 0 && mkdir(dir, 0700) == 0); /* now without it */
    ac_ipc_token_t token = exported(512, 1, &slot);
    ck_assert_uint_eq(strlen(token.stray), 0);
    ck_assert_int_eq(look(&token, &entry), AC_IPC_FOUND);
    ac_ipc_table_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_table");
    TCase *tokens = tcase_create("tokens"), *table = tcase_create("table");
    tcase_add_test(tokens, token_says_what_was_written);
    tcase_add_test(tokens, other_bytes_are_no_token);
    tcase_add_test(tokens, token_of_another_version);
    suite_add_tcase(suite, tokens);
    tcase_add_checked_fixture(table, enter_dir, leave_dir);
    tcase_add_test(table, entries_are_found_until_they_end);
    tcase_add_test(table, table_grows);
    tcase_add_loop_test(table, stale_file_is_replaced, 0, 3);
    tcase_add_test(table, spoilt_table_is_an_error);
    tcase_add_test(table, no_room_is_an_error);
    tcase_add_test(table, another_home_serves);
    tcase_add_test(table, another_home_is_tidied);
    tcase_add_test(table, fork_child_has_none);
    tcase_add_test(table, table_of_the_dead_goes);
    tcase_add_test(table, table_of_the_living_stays);
    tcase_add_test(table, page_replaces_table_too);
    tcase_add_test(table, folder_of_a_container_is_found);
    tcase_add_test(table, stray_folder_is_found);
    tcase_add_test(table, stray_folder_without_page);
    suite_add_tcase(suite, table);
    return run_suite(suite);
}
