/* What rclone says, options of its remotes, and what the driver makes of remotes and processes that go. */
#include "rclone_fixture.h"
#include "transfer.h"

#include "endpoint/rclone/rclone_text.h"
#include "program/program.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t) 1 << 20)

static void test_lines (void)
{
    static const struct {
        const char *text, *level, *object, *message;
    } cases[] = {
        {"{\"level\":\"debug\",\"msg\":\"HEAD request error: object not found\",\"object\":\"a/b\",\"time\":\"x\"}",
         "debug", "a/b", "HEAD request error: object not found"},
        {"{\"msg\":\"Get \\\"https://h/p?X-Sig=secret\\\": refused\\nmore\"}", NULL, NULL,
         "Get \"https://h/p?\": refused more"},
        {"2026/11/27 05:47:33 Failed to lsf", NULL, NULL, "2026/11/27 05:47:33 Failed to lsf"},
        {"{\"msg\":7}", NULL, NULL, "{\"msg\":7}"},
        {"[]", NULL, NULL, "[]"},
        {"", NULL, NULL, ""},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        EcfsRcloneLine line;
        ecfs_rclone_line_parse (cases[i].text, strlen (cases[i].text), &line);
        g_assert_cmpstr (line.level, ==, cases[i].level);
        g_assert_cmpstr (line.object, ==, cases[i].object);
        g_assert_cmpstr (line.message, ==, cases[i].message);
        ecfs_rclone_line_clear (&line);
        ecfs_rclone_line_clear (&line);
    }
}

static void test_items (void)
{
    static const char file[] = "{\"Path\":\"a/b\",\"Name\":\"b\",\"Size\":17,\"ModTime\":\"2026-11-27T05:47:31.5Z\","
                               "\"IsDir\":false},";
    static const char *const none[] = {"[",
                                       "]",
                                       "",
                                       "{",
                                       "{\"Path\":7,\"Size\":1}",
                                       "{\"Path\":\"a\"}",
                                       "7",
                                       "null,",
                                       "2{\"Path\":\"a\",\"Size\":1}",
                                       "{\"Path\":\"a\",\"Size\":1}{}",
                                       "{\"Path\":\"a\",\"Size\":1}2"};
    EcfsRcloneItem item;
    g_assert_true (ecfs_rclone_item_parse (file, strlen (file), &item));
    g_assert_cmpstr (item.path, ==, "a/b");
    g_assert_cmpuint (item.size, ==, 17);
    g_assert_cmpint (item.mtime_s, ==, 1795758451);
    g_assert_false (item.is_directory);
    ecfs_rclone_item_clear (&item);
    ecfs_rclone_item_clear (&item);
    for (size_t i = 0; i < G_N_ELEMENTS (none); i++)
        g_assert_false (ecfs_rclone_item_parse (none[i], strlen (none[i]), &item));
    uint64_t bytes;
    g_assert_true (ecfs_rclone_free_parse ("{\n\t\"free\": 70\n}", 15, &bytes) && bytes == 70);
    g_assert_false (ecfs_rclone_free_parse ("{\"total\": 70}", 13, &bytes));
    g_assert_false (ecfs_rclone_free_parse ("", 0, &bytes));
}

static void test_meanings (void)
{
    static const struct {
        const char *message;
        EcfsRcloneMeaning meaning;
    } cases[] = {
        {"object not found", ECFS_RCLONE_ABSENT},
        {"stat failed: stat: couldn't connect SSH: dial tcp 127.0.0.1:22: connect: connection refused",
         ECFS_RCLONE_LINE},
        {"write /x: no space left on device", ECFS_RCLONE_FULL},
        {"googleapi: Error 403: The user's Drive storage quota has been exceeded., storageQuotaExceeded",
         ECFS_RCLONE_QUOTA},
        {"mkdir /x: permission denied", ECFS_RCLONE_REFUSED},
        {"InvalidRange: The requested range is not satisfiable status code: 416", ECFS_RCLONE_BEYOND},
        {"something else", ECFS_RCLONE_OTHER},
        {"", ECFS_RCLONE_OTHER},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++)
        g_assert_cmpint (ecfs_rclone_meaning (cases[i].message), ==, cases[i].meaning);
}

static void test_versions (void)
{
    unsigned major, minor;
    g_assert_true (ecfs_rclone_version_parse ("rclone/v1.60.1-DEV", &major, &minor) && major == 1 && minor == 60);
    g_assert_true (ecfs_rclone_version_parse ("rclone/v2.0", &major, &minor) && major == 2 && minor == 0);
    static const char *const none[] = {"", "rclone", "rclone/v", "rclone/v1", "rclone/v1.", "nginx/v1.60"};
    for (size_t i = 0; i < G_N_ELEMENTS (none); i++)
        g_assert_false (ecfs_rclone_version_parse (none[i], &major, &minor));
}

static void test_options (void)
{
    static const struct {
        const char *text;
        const char *word; /* of the error; NULL: it is fine */
    } cases[] = {
        {"x=rclone://drive/ecfs/a", NULL},
        {"x=rclone://drive", NULL},
        {"x=rclone://drive/", NULL},
        {"x=rclone://my%20drive@work//srv/x,config=~/c,rclone=/opt/rclone", NULL},
        {"x=rclone:///path", "listremotes"},
        {"x=rclone://-v/path", "listremotes"},
        {"x=rclone://drive,shared_with_me", "KEY=VALUE"},
        {"x=rclone://a:b/path", "listremotes"},
        {"x=rclone://%3alocal%3a/path", "listremotes"},
        {"x=rclone://drive/a/../b", ".."},
        {"x=rclone://drive/a//b", "empty part"},
        {"x=rclone://drive/a?b", "ends with its path"},
        {"x=rclone://drive/a,delete=never", "unknown option"},
        {"x=rclone://drive/a%0ab", "control character"},
    };
    static const EcfsMarker nothing;
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autoptr (GError) error = NULL;
        g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (cases[i].text, &error);
        g_autoptr (EcfsEndpoint) endpoint = spec == NULL ? NULL : ecfs_endpoint_new (spec, &nothing, &error);
        g_test_message ("%s: %s", cases[i].text, error != NULL ? error->message : "fine");
        g_assert_true ((endpoint != NULL) == (cases[i].word == NULL));
        if (cases[i].word != NULL)
            g_assert_nonnull (strstr (error->message, cases[i].word));
    }
}

/* An endpoint with a marker. */
static EcfsEndpoint *start (const char *url, const Rclone *rclone)
{
    g_autofree char *options = rclone_options (rclone);
    g_autofree char *text = g_strdup_printf ("x=%s,%s", url, options);
    EcfsMarker nothing = {.epoch = 0}, marker = {.archive = ecfs_uuid_new (), .endpoint = ecfs_uuid_new ()};
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    g_autoptr (EcfsEndpoint) maker = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (maker);
    g_assert_true (ecfs_endpoint_mark_wait (maker, &marker, true, &error));
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &marker, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static Rclone *remotes (void)
{
    Rclone *rclone = rclone_new ();
    if (rclone == NULL)
        g_test_skip ("SKIPPED: there is no rclone: install rclone");
    return rclone;
}

/* rclone says 404 then. Who believes it takes stripes for lost. */
static void test_a_remote_that_is_away_is_not_an_empty_one (void)
{
    Rclone *rclone = remotes ();
    if (rclone == NULL)
        return;
    if (rclone->sshd != NULL) {
        g_autofree char *url = g_strconcat ("rclone://box/", rclone->sshd->root, "/root", NULL);
        g_setenv ("RCLONE_LOW_LEVEL_RETRIES", "1", TRUE);
        EcfsEndpoint *endpoint = start (url, rclone);
        uint64_t size;
        uint8_t byte;
        const EcfsRange range = {.size = 1, .to = &byte};
        g_autoptr (GError) of_write = NULL, of_size = NULL, of_read = NULL, of_remove = NULL, again = NULL;
        g_assert_true (ecfs_endpoint_write_wait (endpoint, "a/file", "x", 1, &of_write));
        sshd_kill (rclone->sshd);
        g_assert_false (ecfs_endpoint_size_wait (endpoint, "a/file", &size, &of_size));
        g_assert_cmpint (of_size->code, !=, ENOENT);
        g_assert_false (ecfs_endpoint_read_wait (endpoint, "a/file", &range, 1, &of_read));
        g_assert_cmpint (of_read->code, !=, ENOENT);
        g_assert_false (ecfs_endpoint_remove_wait (endpoint, "a/file", &of_remove));
        g_assert_cmpint (of_remove->code, !=, ENOENT);
        sshd_restart (rclone->sshd);
        int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
        while (!ecfs_endpoint_size_wait (endpoint, "a/file", &size, &again)) {
            g_assert_cmpint (again->code, !=, ENOENT);
            g_assert_cmpint (ecfs_now_us (), <, deadline_us);
            g_clear_error (&again);
            g_usleep (10000);
        }
        ecfs_endpoint_free (endpoint);
        g_unsetenv ("RCLONE_LOW_LEVEL_RETRIES");
    }
    rclone_free (rclone);
}

/* Kills the servers of @rclone. */
static unsigned kill_servers (const Rclone *rclone)
{
    g_autofree char *config = g_strconcat ("--config=", rclone->config, NULL);
    g_autoptr (GDir) proc = g_dir_open ("/proc", 0, NULL);
    unsigned n = 0;
    for (const char *name; (name = g_dir_read_name (proc)) != NULL;) {
        g_autofree char *path = g_build_filename ("/proc", name, "cmdline", NULL);
        g_autofree char *words = NULL;
        gsize size = 0;
        if (!g_ascii_isdigit (*name) || !g_file_get_contents (path, &words, &size, NULL) || size == 0)
            continue;
        if (memmem (words, size, config, strlen (config)) != NULL && memmem (words, size, "restic", 6) != NULL)
            n += kill (atoi (name), SIGKILL) == 0 ? 1 : 0;
    }
    return n;
}

static void test_nothing_is_left_of_an_upload_whose_process_died (void)
{
    const size_t size = 12 * MIB;
    Rclone *rclone = remotes ();
    if (rclone == NULL)
        return;
    g_autofree char *url = g_strconcat ("rclone://disk/", rclone->disk, "/root", NULL);
    g_autofree char *file = g_build_filename (rclone->disk, "root/a/file", NULL);
    g_autofree uint8_t *bytes = test_bytes (size, 1);
    EcfsEndpoint *endpoint = start (url, rclone);
    for (unsigned i = 0; i < 2; i++) { /* one that waits for its source, and one whose answer may be lost */
        Transfer transfer;
        transfer_init (&transfer, endpoint);
        transfer.hold = i == 0;
        transfer.chunk = 9 * MIB;
        transfer_write (&transfer, "a/file", bytes, size);
        int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
        while (!g_file_test (file, G_FILE_TEST_EXISTS) && ecfs_now_us () < deadline_us)
            g_usleep (1000);
        g_assert_cmpuint (kill_servers (rclone), ==, 1);
        int code = transfer_finish (&transfer);
        uint64_t stored = 0;
        g_autoptr (GError) error = NULL;
        bool there = ecfs_endpoint_size_wait (endpoint, "a/file", &stored, &error);
        g_assert_true (there ? stored == size : ecfs_errno (error) == ENOENT && code != 0);
        g_assert_true (i == 1 || !there);
        g_clear_error (&error);
        if (there)
            g_assert_true (ecfs_endpoint_remove_wait (endpoint, "a/file", &error));
        g_assert_true (ecfs_endpoint_write_wait (endpoint, "a/file", bytes, size, &error));
        g_assert_true (ecfs_endpoint_remove_wait (endpoint, "a/file", &error));
    }
    ecfs_endpoint_free (endpoint);
    g_assert_cmpuint (kill_servers (rclone), ==, 0);
    rclone_free (rclone);
}

/* Programs that are not what we take them for. */
static void test_hostile_programs (void)
{
    static const char *const programs[] = {"exit 0",
                                           "echo garbage; cat >/dev/null",
                                           "kill -9 $$",
                                           "printf 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'; cat",
                                           "yes '{\"level\":\"error\",\"msg\":' | head -c 3000000 >&2",
                                           "cat",
                                           "exec sleep 60 <&- >&-"};
    static const EcfsMarker nothing;
    for (size_t i = 0; i < G_N_ELEMENTS (programs); i++) {
        g_autoptr (GError) error = NULL;
        g_autofree char *dir = g_dir_make_tmp ("ecfs-rclone-XXXXXX", NULL);
        g_autofree char *path = g_build_filename (dir, "rclone", NULL);
        g_autofree char *script = g_strdup_printf ("#!/bin/sh\n%s\n", programs[i]);
        g_assert_true (g_file_set_contents_full (path, script, -1, G_FILE_SET_CONTENTS_NONE, 0700, NULL));
        g_autofree char *text = g_strdup_printf ("x=rclone://disk/x,rclone=%s,connect_timeout=2s", path);
        g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
        EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, &error);
        g_assert_no_error (error);
        ecfs_endpoint_start (endpoint);
        EcfsMarker marker;
        g_assert_false (ecfs_endpoint_examine_wait (endpoint, &marker, &error));
        g_test_message ("%s: %s", programs[i], error->message);
        g_assert_cmpint (error->code, !=, ENOENT);
        ecfs_endpoint_free (endpoint);
        g_assert_cmpint (unlink (path) | rmdir (dir), ==, 0);
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add_func ("/rclone/lines", test_lines);
    g_test_add_func ("/rclone/items", test_items);
    g_test_add_func ("/rclone/meanings", test_meanings);
    g_test_add_func ("/rclone/versions", test_versions);
    g_test_add_func ("/rclone/options", test_options);
    g_test_add_func ("/rclone/hostile-programs", test_hostile_programs);
    g_test_add_func ("/rclone/a-remote-that-is-away-is-not-an-empty-one",
                     test_a_remote_that_is_away_is_not_an_empty_one);
    g_test_add_func ("/rclone/nothing-is-left-of-an-upload-whose-process-died",
                     test_nothing_is_left_of_an_upload_whose_process_died);
    return g_test_run ();
}
