#include "script.h"

#include <xxhash.h>

typedef struct Word {
    const char *word;
    OpKind kind;
    const char *arguments; /* p: path, o: other, n: number */
} Word;

static const Word words[] = {
    {"create", OP_CREATE, "p"},
    {"open", OP_OPEN, "p"},
    {"truncate", OP_TRUNCATE, "p"},
    {"write", OP_WRITE, "pnn"},
    {"resize", OP_RESIZE, "pn"},
    {"flush", OP_FLUSH, "p"},
    {"fsync", OP_FSYNC, "p"},
    {"close", OP_CLOSE, "p"},
    {"begin", OP_BEGIN, "p"},
    {"await", OP_AWAIT, "p"},
    {"link", OP_LINK, "po"},
    {"rename", OP_RENAME, "po"},
    {"unlink", OP_UNLINK, "p"},
    {"mkdir", OP_MKDIR, "p"},
    {"rmdir", OP_RMDIR, "p"},
    {"symlink", OP_SYMLINK, "po"},
    {"setxattr", OP_SETXATTR, "po"},
    {"removexattr", OP_REMOVEXATTR, "p"},
    {"mtime", OP_MTIME, "pn"},
    {"hide", OP_HIDE, "n"},
    {"show", OP_SHOW, "n"},
    {"wait", OP_WAIT, ""},
    {"remount", OP_REMOUNT, ""},
    {"put", OP_PUT, "pn"},
    {"recode", OP_RECODE, "po"},
    {"cool", OP_COOL, ""},
    {"pack", OP_PACK, ""},
    {"sync", OP_SYNC, ""},
    {"drain", OP_DRAIN, ""},
    {"empty", OP_EMPTY, "n"},
    {"remove", OP_TAKE_OUT, "n"},
    {"read", OP_READ, "p"},
    {"fsck", OP_FSCK, ""},
    {"replace", OP_REPLACE, "nn"},
    {"readonly", OP_READONLY, "n"},
    {"active", OP_ACTIVE, "n"},
    {"damage", OP_DAMAGE, "n"},
    {"lose", OP_LOSE, "n"},
    {"heal", OP_HEAL, ""},
    {"recover", OP_RECOVER, ""},
    {"backup", OP_BACKUP, ""},
    {"stale", OP_STALE, ""},
    {"blot", OP_BLOT, "n"},
    {"elsewhere", OP_ELSEWHERE, "pnn"},
    {"resume", OP_RESUME, ""},
    {"outcome", OP_OUTCOME, ""},
    {"freeze", OP_FREEZE, "n"},
    {"kill", OP_KILL, ""},
    {"cancel", OP_CANCEL, ""},
    {"without", OP_WITHOUT, "n"},
    {"spoil", OP_SPOIL, "nn"},
    {"way", OP_WAY, ""},
    {"rotate", OP_ROTATE, ""},
    {"keyed", OP_KEYED, ""},
    {"end", OP_END, ""},
};

static void op_free (gpointer data)
{
    Op *op = data;
    g_free (op->path);
    g_free (op->other);
    g_free (op);
}

static const Word *find_word (const char *text)
{
    for (size_t i = 0; i < G_N_ELEMENTS (words); i++)
        if (g_str_equal (words[i].word, text))
            return &words[i];
    g_error ("a script says \"%s\"", text);
}

static Op *parse_op (char **fields, unsigned seed)
{
    const Word *word = find_word (fields[0]);
    Op *op = g_new0 (Op, 1);
    op->kind = word->kind;
    op->seed = seed;
    uint64_t *numbers[] = {&op->a, &op->b};
    unsigned n_numbers = 0;
    g_assert_cmpuint (g_strv_length (fields), ==, strlen (word->arguments) + 1);
    for (unsigned i = 0; word->arguments[i] != '\0'; i++) {
        if (word->arguments[i] == 'p')
            op->path = g_strdup (fields[i + 1]);
        else if (word->arguments[i] == 'o')
            op->other = g_strdup (fields[i + 1]);
        else
            *numbers[n_numbers++] = g_ascii_strtoull (fields[i + 1], NULL, 10);
    }
    return op;
}

Script *script_new (const char *text, unsigned first_seed)
{
    Script *script = g_ptr_array_new_with_free_func (op_free);
    g_auto (GStrv) lines = g_strsplit_set (text, ";\n", -1);
    for (char **line = lines; *line != NULL; line++) {
        g_strstrip (*line);
        g_auto (GStrv) fields = g_strsplit (*line, " ", -1);
        if (**line != '\0')
            g_ptr_array_add (script, parse_op (fields, first_seed + script->len));
    }
    return script;
}

GBytes *script_bytes (unsigned seed, size_t size)
{
    uint8_t *bytes = g_malloc (size);
    uint64_t x = (seed + 1) * UINT64_C (0x9e3779b97f4a7c15);
    for (size_t i = 0; i < size; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (uint8_t) (x >> 32);
    }
    return g_bytes_new_take (bytes, size);
}

uint64_t script_hash (GBytes *bytes)
{
    gsize size;
    const void *data = g_bytes_get_data (bytes, &size);
    return XXH3_64bits (data, size) + size;
}
