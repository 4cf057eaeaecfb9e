#include "endpoint/core/hash_text.h"

#include <string.h>

static const struct {
    const char *name;
    size_t digits;
} kinds[] = {{"xxh128", 32}, {"b2", 128}, {"sha256", 64}};

/* Names come by stdin and go to the tool as its stdin, so that no shell and no tool ever reads them as words. */
const char ecfs_hash_script[] =
    "IFS= read -r root && cd -- \"$root\" || exit 3; LC_ALL=C; export LC_ALL; "
    "if command -v xxhsum >/dev/null 2>&1; then tool=\"xxhsum -H2\"; kind=xxh128; "
    "elif command -v b2sum >/dev/null 2>&1; then tool=b2sum; kind=b2; "
    "elif command -v sha256sum >/dev/null 2>&1; then tool=sha256sum; kind=sha256; "
    "else echo ecfs-hash none; exit 4; fi; "
    "echo \"ecfs-hash $kind\"; head -c 4096 ecfs-endpoint; echo; echo \"" ECFS_HASH_MARKER_END "\"; "
    "while IFS= read -r name; do if sum=$($tool <\"$name\") 2>/dev/null; then echo \"$name $sum\"; else echo \"$name "
    "-\"; fi; done";

bool ecfs_hash_root_valid (const char *root)
{
    return root[strcspn (root, "\r\n")] == '\0';
}

const char *ecfs_hash_parse_greeting (const char *line, size_t size)
{
    static const char start[] = "ecfs-hash ";
    size_t start_bytes = strlen (start);
    for (size_t i = 0; i < G_N_ELEMENTS (kinds); i++) {
        size_t name_bytes = strlen (kinds[i].name);
        if (size == start_bytes + name_bytes && memcmp (line, start, start_bytes) == 0 &&
            memcmp (line + start_bytes, kinds[i].name, name_bytes) == 0)
            return kinds[i].name;
    }
    return NULL;
}

static size_t digits_of (const char *kind)
{
    for (size_t i = 0; i < G_N_ELEMENTS (kinds); i++)
        if (strcmp (kinds[i].name, kind) == 0)
            return kinds[i].digits;
    return 0;
}

bool ecfs_hash_parse_answer (const char *kind, const char *name, const char *line, size_t size, char **ret_digest)
{
    size_t digits = digits_of (kind), name_bytes = strlen (name);
    if (size <= name_bytes || memcmp (line, name, name_bytes) != 0 || line[name_bytes] != ' ')
        return false;
    line += name_bytes + 1;
    size -= name_bytes + 1;
    if (size == 1 && line[0] == '-') {
        *ret_digest = NULL;
        return true;
    }
    if (digits == 0 || size < digits || (size > digits && line[digits] != ' '))
        return false;
    for (size_t i = 0; i < digits; i++)
        if (!g_ascii_isxdigit (line[i]) || g_ascii_isupper (line[i]))
            return false;
    *ret_digest = g_strdup_printf ("%s:%.*s", kind, (int) digits, line);
    return true;
}
