/* What GridFTP servers and the Globus libraries say, understood. */
#include "endpoint/gridftp/gridftp_text.h"

#include "endpoint/gridftp/gridftp_wire.h"
#include "util/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPLAIN_MAX 400 /* bytes of a message that nobody understands */

/* Facts */

typedef struct Word {
    const char *at;
    size_t size;
} Word;

static bool word_is (Word word, const char *text)
{
    return strlen (text) == word.size && g_ascii_strncasecmp (word.at, text, word.size) == 0;
}

static bool parse_number (Word word, uint64_t *ret_number)
{
    char text[21];
    if (word.size == 0 || word.size >= sizeof text)
        return false;
    memcpy (text, word.at, word.size);
    text[word.size] = '\0';
    guint64 number;
    if (!g_ascii_string_to_unsigned (text, 10, 0, G_MAXINT64, &number, NULL))
        return false;
    *ret_number = number;
    return true;
}

/* YYYYMMDDhhmmss[.fraction] in UTC, as seconds since 1970; 0 where it is none. */
static int64_t parse_time (Word word)
{
    static const size_t sizes[] = {4, 2, 2, 2, 2, 2};
    uint64_t parts[G_N_ELEMENTS (sizes)];
    const char *at = word.at;
    if (word.size < 14)
        return 0;
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); at += sizes[i++])
        if (!parse_number ((Word){at, sizes[i]}, &parts[i]))
            return 0;
    g_autoptr (GDateTime) time = g_date_time_new_utc ((gint) parts[0], (gint) parts[1], (gint) parts[2],
                                                      (gint) parts[3], (gint) parts[4], (gdouble) parts[5]);
    return time == NULL ? 0 : MAX (g_date_time_to_unix (time), 0);
}

typedef struct Found {
    bool type, size, link;
} Found;

static void take_fact (Word key, Word value, EcfsFacts *facts, Found *found)
{
    if (word_is (key, "type")) {
        found->type = true;
        facts->type = word_is (value, "file")  ? ECFS_FACTS_FILE
                      : word_is (value, "dir") ? ECFS_FACTS_DIRECTORY
                                               : ECFS_FACTS_OTHER;
    } else if (word_is (key, "size")) {
        found->size = parse_number (value, &facts->size);
    } else if (word_is (key, "modify")) {
        facts->mtime_s = parse_time (value);
    } else if (word_is (key, "unix.slink")) {
        found->link = value.size > 0;
    }
}

bool ecfs_facts_parse (const char *line, size_t size, EcfsFacts *ret_facts)
{
    EcfsFacts facts = {.type = ECFS_FACTS_OTHER};
    Found found = {.type = false};
    const char *end = line + size;
    if (memchr (line, '\0', size) != NULL)
        return false;
    while (line < end && *line == ' ' && line + 1 < end && line[1] != ' ' && memchr (line + 1, '=', end - line - 1))
        line++; /* MLST puts one space before the facts */
    for (const char *semicolon; line < end && *line != ' '; line = semicolon + 1) {
        semicolon = memchr (line, ';', (size_t) (end - line));
        const char *equals = semicolon == NULL ? NULL : memchr (line, '=', (size_t) (semicolon - line));
        if (equals == NULL)
            return false;
        take_fact ((Word){line, (size_t) (equals - line)}, (Word){equals + 1, (size_t) (semicolon - equals - 1)},
                   &facts, &found);
    }
    if (line >= end || line + 1 == end)
        return false;
    facts.name = line + 1;
    const char *slash = memrchr (facts.name, '/', (size_t) (end - facts.name));
    if (slash != NULL && slash + 1 < end)
        facts.name = slash + 1;
    facts.name_bytes = (size_t) (end - facts.name);
    if (!found.type || (facts.type == ECFS_FACTS_FILE && !found.size))
        return false;
    if (found.link)
        facts.type = ECFS_FACTS_OTHER;
    *ret_facts = facts;
    return true;
}

/* Failures */

/* A number of the server's system, which counts as Linux does where it matters. */
static int known_errno (long number)
{
    static const int known[] = {ENOENT, EEXIST, EACCES, ENOSPC, EDQUOT, EROFS, ENAMETOOLONG, ENOTEMPTY};
    for (size_t i = 0; i < G_N_ELEMENTS (known); i++)
        if (number == known[i])
            return known[i];
    return number == EPERM ? EACCES : number == ENOTDIR ? ENOENT : number == EFBIG ? ENOSPC : EIO;
}

static int errno_of_words (const char *text)
{
    static const struct {
        const char *words;
        int code;
    } known[] = {
        {"No space left", ENOSPC},
        {"Disk quota exceeded", EDQUOT},
        {"No such file", ENOENT},
        {"Not a directory", ENOENT},
        {"not found", ENOENT},
        {"does not exist", ENOENT},
        {"File exists", EEXIST},
        {"already exists", EEXIST},
        {"Permission denied", EACCES},
        {"Operation not permitted", EACCES},
        {"Read-only file system", EACCES},
        {"Is a directory", EPROTO},
        {"not a plain file", EPROTO},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (known); i++)
        if (strcasestr (text, known[i].words) != NULL)
            return known[i].code;
    return 0;
}

/* 550 is for all that is refused, so without words it is not "absent": a rename may follow on that, which replaces. */
int ecfs_gridftp_errno (unsigned code, const char *text)
{
    if (code == ECFS_GRIDFTP_LOST)
        return ENOTCONN;
    if (code == ECFS_GRIDFTP_BELOW)
        return EIO;
    const char *number = strstr (text, "GridFTP-Errno: ");
    if (number != NULL)
        return known_errno (strtol (number + strlen ("GridFTP-Errno: "), NULL, 10));
    int found = errno_of_words (text);
    if (found != 0)
        return found;
    switch (code) {
    case 452:
    case 552:
        return ENOSPC;
    case 421: /* the service ends */
    case 425: /* no data connection, or a lost one */
    case 426:
    case 430: /* not logged in, or not any more */
    case 530:
    case 535:
        return ENOTCONN;
    case 553:
        return EACCES;
    default:
        return EIO;
    }
}

/* Words for users */

/* What stands between @before and @after in @text, or NULL; g_free (). */
static char *between (const char *text, const char *before, const char *after)
{
    const char *from = strstr (text, before);
    if (from == NULL)
        return NULL;
    from += strlen (before);
    const char *to = strstr (from, after);
    return to == NULL ? NULL : g_strstrip (g_strndup (from, (size_t) (to - from)));
}

static char *explain_expired (const char *text, const EcfsGridftpNames *names)
{
    g_autofree char *proxy = between (text, "The proxy credential: ", "\n");
    g_autofree char *subject = between (text, "with subject: ", "\n");
    if (strstr (text, "\n      expired ") != NULL && proxy != NULL)
        return g_strdup_printf ("the proxy certificate %s (%s) has expired: renew it with grid-proxy-init or "
                                "voms-proxy-init",
                                proxy, subject);
    if (strstr (text, "\n      expired ") != NULL)
        return g_strdup_printf ("the certificate of the user (%s) has expired: ask its authority for a new one",
                                subject != NULL ? subject : "unknown");
    g_autofree char *other = between (text, "The certificate has expired: Credential with subject: ", " has expired");
    if (other != NULL)
        return g_strdup_printf ("a certificate between %s and us has expired (%s): its owner has to renew it, a user's "
                                "proxy with grid-proxy-init or voms-proxy-init",
                                names->host, other);
    return NULL;
}

static char *explain_missing (const char *text, const EcfsGridftpNames *names)
{
    if (strstr (text, "Valid credentials could not be found") == NULL)
        return NULL;
    return g_strdup_printf ("there is no proxy certificate at %s, nor a certificate of the user and its key: make a "
                            "proxy with grid-proxy-init or voms-proxy-init, or set user_proxy",
                            names->user_proxy != NULL ? names->user_proxy : "the usual place");
}

static char *explain_untrusted (const char *text, const EcfsGridftpNames *names)
{
    if (strstr (text, "local trusted CA certificate") == NULL && strstr (text, "local issuer certificate") == NULL &&
        strstr (text, "self-signed certificate") == NULL && strstr (text, "self signed certificate") == NULL)
        return NULL;
    g_autofree char *hash = between (text, "with hash ", "\n");
    return g_strdup_printf ("the certificate of %s is signed by an authority that is not trusted (hash %s): put that "
                            "authority's certificate into %s, or set certificates",
                            names->host, hash != NULL ? hash : "unknown", names->certificates);
}

static char *explain_identity (const char *text, const EcfsGridftpNames *names)
{
    g_autofree char *host = between (text, "does not match the authenticated name of the remote host (", ")");
    if (host != NULL)
        return g_strdup_printf ("the server that answers at %s has a certificate for another host (%s): correct the "
                                "URL, or set subject to the identity to expect",
                                names->host, g_str_has_prefix (host, "host@") ? host + strlen ("host@") : host);
    g_autofree char *subject = between (text, "The name of the remote entity (", "), and the expected name");
    if (subject != NULL)
        return g_strdup_printf ("the server that answers at %s has a certificate of another identity (%s): correct the "
                                "URL, or set subject to the identity to expect",
                                names->host, subject);
    g_autofree char *revoked = between (text, "The certificate has been revoked: ", "\n");
    if (revoked != NULL)
        return g_strdup_printf ("the certificate of %s has been revoked (%s)", names->host, revoked);
    return NULL;
}

/* What the ssh program says of servers that it does not know. */
static char *explain_host_key (const char *text, const EcfsGridftpNames *names)
{
    const char *file = names->known_hosts != NULL ? names->known_hosts : "~/.ssh/known_hosts";
    if (strstr (text, "Host key verification failed") == NULL)
        return NULL;
    if (strstr (text, "HOST IDENTIFICATION HAS CHANGED") != NULL)
        return g_strdup_printf ("the host key of %s is not the one in %s: somebody may be in between; where the server "
                                "has a new key, replace it there",
                                names->host, file);
    g_autofree char *port = names->port != 0 ? g_strdup_printf ("-p %u ", names->port) : g_strdup ("");
    return g_strdup_printf (
        "the host key of %s is not in %s: run \"ssh -o UserKnownHostsFile=%s %s%s\", which shows it "
        "and asks, and compare its fingerprint",
        names->host, file, file, port, names->host);
}

/* Lines that say nothing that the next does not. */
static bool is_noise (const char *line)
{
    static const char *const noise[] = {"globus_ftp_client: the server responded with an error",
                                        "GSS failure:",
                                        "GSS Minor Status Error Chain:",
                                        "550 End.",
                                        "500 End.",
                                        "530 End."};
    for (size_t i = 0; i < G_N_ELEMENTS (noise); i++)
        if (g_str_equal (line, noise[i]))
            return true;
    return line[0] == '\0';
}

/* Takes @text. */
static char *clean (char *text)
{
    char *clean_text = ecfs_text_clean (text, ECFS_WORDS_MAX);
    g_free (text);
    return clean_text;
}

char *ecfs_gridftp_explain (const char *text, const EcfsGridftpNames *names)
{
    static char *(*const explain[]) (const char *, const EcfsGridftpNames *) = {
        explain_expired, explain_missing, explain_identity, explain_untrusted, explain_host_key};
    for (size_t i = 0; i < G_N_ELEMENTS (explain); i++) {
        char *line = explain[i](text, names);
        if (line != NULL)
            return clean (line);
    }
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    GString *said = g_string_new (NULL);
    for (size_t i = 0; lines[i] != NULL && said->len < EXPLAIN_MAX; i++) {
        const char *line = g_strstrip (lines[i]);
        if (!is_noise (line))
            g_string_append_printf (said, "%s%s", said->len > 0 ? "; " : "", line);
    }
    g_string_truncate (said, MIN (said->len, EXPLAIN_MAX));
    return clean (g_string_free (said, FALSE));
}
