/* What GridFTP servers say, understood: facts of files, failures, and what users are told. */
#include "endpoint/gridftp/gridftp_text.h"
#include "endpoint/gridftp/gridftp_wire.h"

#include <errno.h>
#include <string.h>

static bool parse (const char *line, EcfsFacts *ret_facts)
{
    return ecfs_facts_parse (line, strlen (line), ret_facts);
}

static void assert_name (const EcfsFacts *facts, const char *name)
{
    g_assert_cmpuint (facts->name_bytes, ==, strlen (name));
    g_assert_true (memcmp (facts->name, name, facts->name_bytes) == 0);
}

static void test_files (void)
{
    EcfsFacts facts;
    g_assert_true (parse ("Type=file;Modify=20261122105246;Size=50000000;Perm=awr;UNIX.mode=0644; some name", &facts));
    g_assert_cmpint (facts.type, ==, ECFS_FACTS_FILE);
    g_assert_cmpuint (facts.size, ==, 50000000);
    g_assert_cmpint (facts.mtime_s, ==, 1795344766);
    assert_name (&facts, "some name");
    g_assert_true (parse (" size=0;type=FILE;modify=19700101000000.123; /a/b/c", &facts));
    g_assert_cmpint (facts.mtime_s, ==, 0);
    assert_name (&facts, "c");
    g_assert_true (parse ("type=dir;; x", &facts) == false);
    g_assert_true (parse ("type=file;size=9223372036854775807; x", &facts));
    g_assert_cmpuint (facts.size, ==, G_MAXINT64);
}

static void test_others (void)
{
    EcfsFacts facts;
    g_assert_true (parse ("Type=dir;Size=4096; sub", &facts));
    g_assert_cmpint (facts.type, ==, ECFS_FACTS_DIRECTORY);
    static const char *const others[] = {"Type=cdir;Size=1; .", "Type=pdir; ..", "Type=OS.unix=slink:/etc; x",
                                         "Type=dir;UNIX.slink=/etc; x", "Type=file;Size=1;UNIX.slink=/etc/passwd; x"};
    for (size_t i = 0; i < G_N_ELEMENTS (others); i++) {
        g_assert_true (parse (others[i], &facts));
        g_assert_cmpint (facts.type, ==, ECFS_FACTS_OTHER);
    }
}

static void test_hostile (void)
{
    EcfsFacts facts;
    static const char *const bad[] = {"",
                                      " ",
                                      ";",
                                      "x",
                                      "Type=file;Size=1;",
                                      "Type=file;Size=1; ",
                                      "Size=1; x",
                                      "Type=file; x",
                                      "Type=file;Size=; x",
                                      "Type=file;Size=-1; x",
                                      "Type=file;Size=1e3; x",
                                      "Type;Size=1; x",
                                      "Type=file;Size=99999999999999999999; x",
                                      "Type=file;Size=18446744073709551615; x"};
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_false (parse (bad[i], &facts));
    g_assert_false (ecfs_facts_parse ("Type=file;Size=1; a\0b", 21, &facts));
    g_assert_true (parse ("Type=file;Size=1;Modify=99999999999999; x", &facts));
    g_assert_cmpint (facts.mtime_s, ==, 0);
}

static void test_errnos (void)
{
    static const struct {
        unsigned code;
        const char *text;
        int expected;
    } cases[] = {
        {550, "550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n550 End.", ENOENT},
        {553, "553-GridFTP-Errno: 17\r\n", EEXIST},
        {500, "500-globus_xio: System error in open: No such file or directory\r\n", ENOENT},
        {500, "500-globus_xio: System error in write: No space left on device\r\n", ENOSPC},
        {552, "552 over", ENOSPC},
        {550, "550-GridFTP-Errno: 1\r\n", EACCES},
        {550, "550-GridFTP-Errno: 99999999999999999999999\r\n", EIO},
        {550, "550 Failed to open file.", EIO},
        {550, "550 File Not Found", ENOENT},
        {550, "550 [SE] no such file or directory", ENOENT},
        {425, "425 no data connection", ENOTCONN},
        {530, "530 Login incorrect.", ENOTCONN},
        {451, "451 strange", EIO},
        {ECFS_GRIDFTP_LOST, "an end-of-file was reached; No such file", ENOTCONN},
        {ECFS_GRIDFTP_BELOW, "the operation was aborted", EIO},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++)
        g_assert_cmpint (ecfs_gridftp_errno (cases[i].code, cases[i].text), ==, cases[i].expected);
}

static void assert_explained (const char *text, const char *part)
{
    static const EcfsGridftpNames names = {
        .host = "se.example.org", .port = 2222, .user_proxy = "/tmp/x509up_u0", .certificates = "/etc/certs"};
    g_autofree char *said = ecfs_gridftp_explain (text, &names);
    g_assert_null (strchr (said, '\n'));
    if (strstr (said, part) == NULL)
        g_error ("\"%s\" lacks \"%s\"", said, part);
}

static void test_explains (void)
{
    assert_explained (
        "globus_credential: Error with credential: The proxy credential: /p\n      with subject: /O=x/CN=y\n"
        "      expired 1451 minutes ago.\n",
        "the proxy certificate /p (/O=x/CN=y) has expired: renew it with grid-proxy-init");
    assert_explained ("globus_credential: Valid credentials could not be found in any of the possible locations\n",
                      "no proxy certificate at /tmp/x509up_u0");
    assert_explained (
        "Can't get the local trusted CA certificate: Untrusted self-signed certificate in chain with hash "
        "7315df33\n\n",
        "not trusted (hash 7315df33): put that authority's certificate into /etc/certs");
    assert_explained ("The expected name for the remote host (host@vm) does not match the authenticated name of the "
                      "remote host (host@other). This happens",
                      "for another host (other)");
    assert_explained ("The certificate has been revoked: Serial number = 5\n", "has been revoked (Serial number = 5)");
    assert_explained ("globus_ftp_client: the server responded with an error\n530 Login\001 incorrect.\r\n\n",
                      "530 Login? incorrect.");
    assert_explained ("No ED25519 host key is known for se\r\nHost key verification failed.\r\n",
                      "ssh -o UserKnownHostsFile=~/.ssh/known_hosts -p 2222 se.example.org");
    assert_explained ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\nHost key verification failed.\r\n",
                      "somebody may be in between");
    assert_explained ("", "");
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/gridftp-text/tells-what-is-a-file", test_files);
    g_test_add_func ("/gridftp-text/tells-what-is-not", test_others);
    g_test_add_func ("/gridftp-text/refuses-hostile-lines", test_hostile);
    g_test_add_func ("/gridftp-text/knows-what-failed", test_errnos);
    g_test_add_func ("/gridftp-text/says-what-to-do", test_explains);
    return g_test_run ();
}
