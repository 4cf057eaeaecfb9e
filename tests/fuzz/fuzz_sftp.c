/* What a hostile SFTP server can send: every parser of sftp_protocol.h on the same bytes. */
#include "endpoint/core/hash_text.h"
#include "endpoint/sftp/sftp_protocol.h"
#include "endpoint/ssh/ssh_config.h"
#include "endpoint/ssh/ssh_known_hosts.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void parse_reply (const uint8_t *bytes, size_t size)
{
    EcfsSftpReply reply;
    if (ecfs_sftp_parse_reply (bytes, size, &reply) != 0)
        return;
    EcfsSftpName name;
    EcfsSftpLimits limits;
    EcfsSftpSpace space;
    if (reply.handle.size > ECFS_SFTP_MAX_HANDLE || reply.rest_bytes > size || reply.text_bytes > size)
        abort ();
    (void) ecfs_sftp_parse_limits (&reply, &limits);
    (void) ecfs_sftp_parse_statvfs (&reply, &space);
    while (ecfs_sftp_next_name (&reply, &name) == 0)
        if (name.name < (const char *) bytes || name.name + name.name_bytes > (const char *) bytes + size)
            abort ();
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    uint8_t type;
    uint32_t id;
    size_t packet_bytes;
    unsigned extensions;
    if (size >= ECFS_SFTP_HEADER_BYTES && ecfs_sftp_parse_header (bytes, &type, &id, &packet_bytes) == 0 &&
        (packet_bytes < ECFS_SFTP_HEADER_BYTES || packet_bytes > ECFS_SFTP_MAX_PACKET))
        abort ();
    (void) ecfs_sftp_parse_version (bytes, size, &extensions);
    parse_reply (bytes, size);
    /* With the right length in front, more of the inputs get further. */
    g_autofree uint8_t *packet = g_memdup2 (bytes, size);
    if (size >= 4) {
        uint32_t big = GUINT32_TO_BE ((uint32_t) (size - 4));
        memcpy (packet, &big, sizeof big);
        parse_reply (packet, size);
        (void) ecfs_sftp_parse_version (packet, size, &extensions);
    }
    /* What a hash tool on the other side says. */
    static const char *const kinds[] = {"xxh128", "b2", "sha256"};
    for (size_t i = 0; i < G_N_ELEMENTS (kinds); i++) {
        g_autofree char *digest = NULL;
        g_autofree char *line = g_memdup2 (bytes, size);
        if (size >= 2)
            memcpy (line, "n ", 2);
        (void) ecfs_hash_parse_answer (kinds[i], "n", line, size, &digest);
    }
    (void) ecfs_hash_parse_greeting ((const char *) bytes, size);
    /* The texts that come from files and from ssh -G. */
    g_autofree char *text = g_strndup ((const char *) bytes, size);
    g_autoptr (GPtrArray) keys = ecfs_known_hosts_new ();
    ecfs_known_hosts_find (text, "known_hosts", "host", 22, keys);
    EcfsSshRequest request = {.host = "host"};
    ecfs_ssh_config_free (ecfs_ssh_config_parse (&request, text, "/home/u", NULL, NULL));
    return 0;
}
