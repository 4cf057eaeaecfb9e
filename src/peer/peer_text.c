#include "peer/peer_text.h"

#include <inttypes.h>
#include <string.h>

#define MOST_PARTS 8

/* A decimal number of at most 19 digits, and nothing else. */
static bool parse_number (const char *text, uint64_t max, uint64_t *ret_number)
{
    uint64_t number = 0;
    size_t size = strlen (text);
    if (size == 0 || size > 19 || (size > 1 && text[0] == '0'))
        return false;
    for (const char *c = text; *c != '\0'; c++) {
        if (!g_ascii_isdigit (*c))
            return false;
        number = number * 10 + (uint64_t) (*c - '0');
    }
    *ret_number = number;
    return number <= max;
}

/* OBJECT, SEGMENT, BYTES */
static bool parse_cell (char *const *parts, EcfsPeerRequest *request)
{
    return ecfs_uuid_parse (parts[0], &request->cell.object) &&
           parse_number (parts[1], INT64_MAX, &request->cell.segment) &&
           parse_number (parts[2], ECFS_PEER_CELL_MAX, &request->bytes) && request->bytes > 0;
}

static const char *const questions[] = {
    [ECFS_PEER_WHERE] = "where", [ECFS_PEER_CLAIM] = "claim", [ECFS_PEER_JOIN] = "join"};

static bool parse_question (const char *name, EcfsPeerVerb *ret_verb)
{
    for (unsigned i = 0; i < G_N_ELEMENTS (questions); i++) {
        *ret_verb = (EcfsPeerVerb) i;
        if (questions[i] != NULL && strcmp (questions[i], name) == 0)
            return true;
    }
    return false;
}

static bool parse_path (const char *path, EcfsPeerRequest *request)
{
    uint64_t wait_ms = 0;
    g_auto (GStrv) parts = g_strsplit (path, "/", MOST_PARTS + 1);
    guint n = g_strv_length (parts);
    if (n < 3 || n > MOST_PARTS || parts[0][0] != '\0' || strcmp (parts[1], "v1") != 0)
        return false;
    if (n == 3 && strcmp (parts[2], "hello") == 0) {
        request->verb = ECFS_PEER_HELLO;
        return true;
    }
    if (n == 7 && strcmp (parts[2], "get") == 0) {
        request->verb = ECFS_PEER_GET;
        bool good = parse_cell (parts + 3, request) && parse_number (parts[6], INT64_MAX, &wait_ms);
        request->wait_ms = (unsigned) MIN (wait_ms, ECFS_PEER_WAIT_MAX_MS);
        return good;
    }
    return n == 8 && parse_question (parts[2], &request->verb) && parse_cell (parts + 3, request) &&
           ecfs_uuid_parse (parts[6], &request->asker) && ecfs_uuid_parse (parts[7], &request->without);
}

/* What is said behind the request line counts only where it ends the connection, or announces a body: there is none. */
static bool parse_headers (char *const *lines, EcfsPeerRequest *request)
{
    for (; *lines != NULL; lines++) {
        if (g_ascii_strncasecmp (*lines, "Content-Length:", 15) == 0 ||
            g_ascii_strncasecmp (*lines, "Transfer-Encoding:", 18) == 0)
            return false;
        if (g_ascii_strncasecmp (*lines, "Connection:", 11) == 0 && strstr (*lines + 11, "close") != NULL)
            request->closes = true;
    }
    return true;
}

int ecfs_peer_request_parse (const char *bytes, size_t size, EcfsPeerRequest *ret_request)
{
    EcfsPeerRequest request = {.verb = ECFS_PEER_HELLO};
    const char *end = memmem (bytes, size, "\r\n\r\n", 4);
    size_t head = end == NULL ? size : (size_t) (end - bytes) + 4;
    if (head > ECFS_PEER_HEAD_MAX || memchr (bytes, '\0', head) != NULL ||
        strncmp (bytes, "GET /v1/", MIN (size, 8)) != 0)
        return -EPROTO;
    if (end == NULL)
        return size == ECFS_PEER_HEAD_MAX ? -EPROTO : 0;
    g_autofree char *text = g_strndup (bytes, head - 4);
    g_auto (GStrv) lines = g_strsplit (text, "\r\n", -1);
    char *path = lines[0] + strlen ("GET ");
    char *version = strchr (path, ' ');
    if (version == NULL || strcmp (version, " HTTP/1.1") != 0)
        return -EPROTO;
    *version = '\0';
    if (!parse_path (path, &request) || !parse_headers (lines + 1, &request))
        return -EPROTO;
    *ret_request = request;
    return (int) head;
}

char *ecfs_peer_request_path (const EcfsPeerRequest *request)
{
    char object[ECFS_UUID_TEXT_SIZE], asker[ECFS_UUID_TEXT_SIZE], without[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&request->cell.object, object);
    ecfs_uuid_text (&request->asker, asker);
    ecfs_uuid_text (&request->without, without);
    switch (request->verb) {
    case ECFS_PEER_GET:
        return g_strdup_printf ("/v1/get/%s/%" PRIu64 "/%" PRIu64 "/%u", object, request->cell.segment, request->bytes,
                                request->wait_ms);
    case ECFS_PEER_WHERE:
    case ECFS_PEER_CLAIM:
    case ECFS_PEER_JOIN:
        return g_strdup_printf ("/v1/%s/%s/%" PRIu64 "/%" PRIu64 "/%s/%s", questions[request->verb], object,
                                request->cell.segment, request->bytes, asker, without);
    case ECFS_PEER_HELLO:
        break;
    }
    return g_strdup ("/v1/hello");
}

static bool is_host (const char *host, bool in_brackets)
{
    for (const char *c = host; *c != '\0'; c++)
        if (!g_ascii_isalnum (*c) && *c != '-' && *c != '.' && (*c != ':' || !in_brackets))
            return false;
    return host[0] != '\0' && host[0] != '-';
}

bool ecfs_peer_address_parse (const char *text, char **ret_host, unsigned *ret_port)
{
    uint64_t port;
    bool in_brackets = text[0] == '[';
    const char *colon = strrchr (text, ':');
    if (colon == NULL || colon == text || !parse_number (colon + 1, 65535, &port) || port == 0 ||
        (in_brackets && colon[-1] != ']'))
        return false;
    g_autofree char *host =
        in_brackets ? g_strndup (text + 1, (size_t) (colon - text) - 2) : g_strndup (text, (size_t) (colon - text));
    if (!is_host (host, in_brackets))
        return false;
    *ret_host = g_steal_pointer (&host);
    *ret_port = (unsigned) port;
    return true;
}
