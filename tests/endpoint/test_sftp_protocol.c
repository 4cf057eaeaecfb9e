#include "endpoint/sftp/sftp_protocol.h"

#include <errno.h>
#include <string.h>

/* A packet put together by hand, with the length in front. */
static GByteArray *packet (const char *bytes, size_t size)
{
    GByteArray *all = g_byte_array_new ();
    uint32_t big = GUINT32_TO_BE ((uint32_t) size);
    g_byte_array_append (all, (const uint8_t *) &big, sizeof big);
    g_byte_array_append (all, (const uint8_t *) bytes, (guint) size);
    return all;
}

#define PACKET(text) packet (text, sizeof (text) - 1)

static int parse (GByteArray *bytes, EcfsSftpReply *ret_reply)
{
    /* In a block of exactly its size, so that a read beyond it is seen by a sanitizer. */
    static uint8_t *copy;
    g_free (copy);
    copy = g_memdup2 (bytes->data, bytes->len);
    int result = ecfs_sftp_parse_reply (copy, bytes->len, ret_reply);
    g_byte_array_unref (bytes);
    return result;
}

static void assert_packet (GByteArray *built, const char *expected, size_t size)
{
    g_assert_cmpmem (built->data, (int) built->len, expected, (int) size);
    g_byte_array_unref (built);
}

static void builds_requests (void)
{
    static const EcfsSftpHandle handle = {.size = 2, .bytes = "hh"};
    GByteArray *to = g_byte_array_new ();
    ecfs_sftp_put_init (to);
    assert_packet (to, "\0\0\0\5\1\0\0\0\3", 9);
    to = g_byte_array_new ();
    ecfs_sftp_put_create (to, 7, "a", ECFS_SFTP_OPEN_WRITE | ECFS_SFTP_OPEN_CREATE | ECFS_SFTP_OPEN_EXCLUSIVE, 0600);
    assert_packet (to, "\0\0\0\26\3\0\0\0\7\0\0\0\1a\0\0\0\52\0\0\0\4\0\0\1\200", 26);
    to = g_byte_array_new ();
    ecfs_sftp_put_open (to, 7, "a", ECFS_SFTP_OPEN_READ);
    assert_packet (to, "\0\0\0\22\3\0\0\0\7\0\0\0\1a\0\0\0\1\0\0\0\0", 22);
    to = g_byte_array_new ();
    ecfs_sftp_put_read (to, 8, &handle, UINT64_C (0x0102030405060708), 0x10000);
    assert_packet (to, "\0\0\0\27\5\0\0\0\10\0\0\0\2hh\1\2\3\4\5\6\7\10\0\1\0\0", 27);
    to = g_byte_array_new ();
    ecfs_sftp_put_rename (to, 9, "a", "b", false);
    assert_packet (to, "\0\0\0\17\22\0\0\0\11\0\0\0\1a\0\0\0\1b", 19);
}

static void counts_the_data_of_a_write_in_its_length (void)
{
    static const EcfsSftpHandle handle = {.size = 1, .bytes = "h"};
    g_autoptr (GByteArray) to = g_byte_array_new ();
    ecfs_sftp_put_write (to, 1, &handle, 0, 1000);
    uint32_t big;
    memcpy (&big, to->data, sizeof big);
    g_assert_cmpuint (GUINT32_FROM_BE (big), ==, to->len - 4 + 1000);
}

static void parses_each_kind_of_reply (void)
{
    EcfsSftpReply reply;
    g_assert_cmpint (parse (PACKET ("\145\0\0\0\5\0\0\0\2\0\0\0\4gone\0\0\0\2en"), &reply), ==, 0);
    g_assert_cmpuint (reply.id, ==, 5);
    g_assert_cmpuint (reply.status, ==, ECFS_SFTP_NO_SUCH_FILE);
    g_assert_cmpmem (reply.text, (int) reply.text_bytes, "gone", 4);
    g_assert_cmpint (parse (PACKET ("\145\0\0\0\5\0\0\0\0"), &reply), ==, 0); /* without text */
    g_assert_null (reply.text);
    g_assert_cmpint (parse (PACKET ("\146\0\0\0\6\0\0\0\3abc"), &reply), ==, 0);
    g_assert_cmpmem (reply.handle.bytes, (int) reply.handle.size, "abc", 3);
    g_assert_cmpint (parse (PACKET ("\151\0\0\0\6\0\0\0\15\0\0\0\1\0\0\0\0\0\0\201\244\0\0\0\1\0\0\0\2"), &reply), ==,
                     0);
    g_assert_true (reply.attrs.has_size && reply.attrs.has_mode && reply.attrs.has_times);
    g_assert_cmpuint (reply.attrs.size, ==, UINT64_C (1) << 32);
    g_assert_cmpuint (reply.attrs.mode, ==, 0100644);
    g_assert_cmpuint (reply.attrs.mtime_s, ==, 2);
}

static void walks_through_names (void)
{
    EcfsSftpReply reply;
    EcfsSftpName name;
    g_assert_cmpint (parse (PACKET ("\150\0\0\0\6\0\0\0\2\0\0\0\1a\0\0\0\4long\0\0\0\0"
                                    "\0\0\0\2bc\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\7"),
                            &reply),
                     ==, 0);
    g_assert_cmpint (ecfs_sftp_next_name (&reply, &name), ==, 0);
    g_assert_cmpmem (name.name, (int) name.name_bytes, "a", 1);
    g_assert_cmpint (ecfs_sftp_next_name (&reply, &name), ==, 0);
    g_assert_cmpmem (name.name, (int) name.name_bytes, "bc", 2);
    g_assert_cmpuint (name.attrs.size, ==, 7);
    g_assert_cmpint (ecfs_sftp_next_name (&reply, &name), ==, -ENOENT);
}

static void refuses_what_makes_no_sense (void)
{
    EcfsSftpReply reply;
    EcfsSftpName name;
    g_assert_cmpint (parse (PACKET ("\145\0\0\0\5\0\0"), &reply), ==, -EPROTO);                      /* cut */
    g_assert_cmpint (parse (PACKET ("\145\0\0\0\5\0\0\0\2\377\377\377\377x"), &reply), ==, -EPROTO); /* long text */
    g_assert_cmpint (parse (PACKET ("\146\0\0\0\6\0\0\0\0"), &reply), ==, -EPROTO);                  /* empty handle */
    g_assert_cmpint (parse (PACKET ("\143\0\0\0\6\0\0\0\0"), &reply), ==, -EPROTO);                  /* unknown type */
    g_assert_cmpint (parse (PACKET ("\151\0\0\0\6\200\0\0\0\377\377\377\377"), &reply), ==, -EPROTO);
    GByteArray *wrong = PACKET ("\146\0\0\0\6\0\0\0\1a");
    wrong->data[3]++;
    g_assert_cmpint (parse (wrong, &reply), ==, -EPROTO);
    g_assert_cmpint (parse (PACKET ("\150\0\0\0\6\0\0\0\2\0\0\0\1a\0\0\0\0\0\0\0\0"), &reply), ==, 0);
    g_assert_cmpint (ecfs_sftp_next_name (&reply, &name), ==, 0);
    g_assert_cmpint (ecfs_sftp_next_name (&reply, &name), ==, -EPROTO); /* two announced, one there */
    g_autoptr (GString) big = g_string_new_len ("\146\0\0\0\6\0\0\1\1", 9);
    for (unsigned i = 0; i < ECFS_SFTP_MAX_HANDLE + 1; i++)
        g_string_append_c (big, 'h');
    g_assert_cmpint (parse (packet (big->str, big->len), &reply), ==, -EPROTO);
}

static void bounds_packets (void)
{
    uint8_t type;
    uint32_t id;
    size_t bytes;
    g_assert_cmpint (ecfs_sftp_parse_header ((const uint8_t *) "\0\0\0\4\145\0\0\0\1", &type, &id, &bytes), ==,
                     -EPROTO);
    g_assert_cmpint (ecfs_sftp_parse_header ((const uint8_t *) "\377\377\377\377\145\0\0\0\1", &type, &id, &bytes), ==,
                     -EPROTO);
    g_assert_cmpint (ecfs_sftp_parse_header ((const uint8_t *) "Last logi", &type, &id, &bytes), ==, -EPROTO);
    g_assert_cmpint (ecfs_sftp_parse_header ((const uint8_t *) "\0\0\0\5\145\0\0\0\1", &type, &id, &bytes), ==, 0);
    g_assert_cmpuint (bytes, ==, 9);
    g_assert_cmpuint (id, ==, 1);
}

static void finds_extensions (void)
{
    unsigned extensions = 0;
    g_autoptr (GByteArray) version = PACKET ("\2\0\0\0\3\0\0\0\21fsync@openssh.com\0\0\0\0011"
                                             "\0\0\0\24fstatvfs@openssh.com\0\0\0\0012"
                                             "\0\0\0\23statvfs@openssh.com\0\0\0\0019"
                                             "\0\0\0\1x\0\0\0\0");
    g_assert_cmpint (ecfs_sftp_parse_version (version->data, version->len, &extensions), ==, 0);
    g_assert_cmpuint (extensions, ==,
                      ECFS_SFTP_HAS_FSYNC | ECFS_SFTP_HAS_FSTATVFS); /* not statvfs of an unknown version */
    g_assert_cmpint (ecfs_sftp_parse_version (version->data, version->len - 1, &extensions), ==, -EPROTO);
    g_autoptr (GByteArray) old = PACKET ("\2\0\0\0\2");
    g_assert_cmpint (ecfs_sftp_parse_version (old->data, old->len, &extensions), ==, -EPROTO);
}

static void parses_what_statvfs_tells (void)
{
    uint8_t packet[9 + 88] = {0, 0, 0, 5 + 88, ECFS_SFTP_EXTENDED_REPLY, 0, 0, 0, 7};
    uint8_t *body = packet + 9; /* 11 numbers of 8 bytes, big-endian */
    body[8 + 6] = 16;           /* f_frsize 4096 */
    body[16 + 7] = 200;         /* f_blocks */
    body[24 + 7] = 150;         /* f_bfree */
    body[32 + 7] = 100;         /* f_bavail */
    body[64] = 1;               /* f_fsid */
    body[64 + 7] = 2;
    EcfsSftpReply reply;
    EcfsSftpSpace space;
    g_assert_cmpint (ecfs_sftp_parse_reply (packet, sizeof packet, &reply), ==, 0);
    g_assert_cmpint (ecfs_sftp_parse_statvfs (&reply, &space), ==, 0);
    g_assert_cmpuint (space.free_bytes, ==, 100 * 4096);
    g_assert_cmpuint (space.total_bytes, ==, 200 * 4096);
    g_assert_cmpuint (space.fsid, ==, UINT64_C (0x0100000000000002));
    body[32] = 0xff; /* more than 64 bits of bytes */
    g_assert_cmpint (ecfs_sftp_parse_statvfs (&reply, &space), ==, 0);
    g_assert_cmpuint (space.free_bytes, ==, UINT64_MAX);
    reply.rest_bytes--;
    g_assert_cmpint (ecfs_sftp_parse_statvfs (&reply, &space), ==, -EPROTO);
}

static void turns_status_into_errno_by_operation (void)
{
    g_assert_cmpint (ecfs_sftp_errno (ECFS_SFTP_FAILURE, ECFS_SFTP_ON_WRITE), ==, ENOSPC);
    g_assert_cmpint (ecfs_sftp_errno (ECFS_SFTP_FAILURE, ECFS_SFTP_ON_RENAME), ==, EEXIST);
    g_assert_cmpint (ecfs_sftp_errno (ECFS_SFTP_FAILURE, ECFS_SFTP_ON_OPEN), ==, EIO);
    g_assert_cmpint (ecfs_sftp_errno (ECFS_SFTP_EOF, ECFS_SFTP_ON_READ), ==, EBADMSG);
    g_assert_cmpint (ecfs_sftp_errno (ECFS_SFTP_NO_SUCH_FILE, ECFS_SFTP_ON_OPEN), ==, ENOENT);
    g_assert_cmpint (ecfs_sftp_errno (ECFS_SFTP_PERMISSION_DENIED, ECFS_SFTP_ON_OPEN), ==, EACCES);
    g_assert_cmpint (ecfs_sftp_errno (11, ECFS_SFTP_ON_RENAME), ==, EEXIST); /* as ProFTPD says it */
    g_assert_cmpint (ecfs_sftp_errno (14, ECFS_SFTP_ON_WRITE), ==, ENOSPC);
    g_assert_cmpint (ecfs_sftp_errno (15, ECFS_SFTP_ON_COMMIT), ==, EDQUOT);
    g_assert_cmpint (ecfs_sftp_errno (12, ECFS_SFTP_ON_OPEN), ==, EACCES);
    g_assert_cmpint (ecfs_sftp_errno (4711, ECFS_SFTP_ON_OTHER), ==, EPROTO);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/sftp-protocol/builds-requests", builds_requests);
    g_test_add_func ("/sftp-protocol/counts-the-data-of-a-write-in-its-length",
                     counts_the_data_of_a_write_in_its_length);
    g_test_add_func ("/sftp-protocol/parses-each-kind-of-reply", parses_each_kind_of_reply);
    g_test_add_func ("/sftp-protocol/walks-through-names", walks_through_names);
    g_test_add_func ("/sftp-protocol/refuses-what-makes-no-sense", refuses_what_makes_no_sense);
    g_test_add_func ("/sftp-protocol/bounds-packets", bounds_packets);
    g_test_add_func ("/sftp-protocol/finds-extensions", finds_extensions);
    g_test_add_func ("/sftp-protocol/parses-what-statvfs-tells", parses_what_statvfs_tells);
    g_test_add_func ("/sftp-protocol/turns-status-into-errno-by-operation", turns_status_into_errno_by_operation);
    return g_test_run ();
}
