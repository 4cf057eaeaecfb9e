/* Statements as PostgreSQL knows them. */
#include "catalog/pg_priv.h"

typedef struct Reader {
    const char *at;
    const char *schema;
    int64_t member;
    GString *out;
    int n_parameters; /* so far, of those without a number */
    bool of_index;    /* it makes an index, whose table is behind ON */
    bool drops;       /* it drops an index, whose name is behind EXISTS */
} Reader;

static bool is_word (char c)
{
    return g_ascii_isalnum (c) || c == '_';
}

static size_t word_length (const char *at)
{
    size_t n = 0;
    while (is_word (at[n]))
        n++;
    return n;
}

static bool word_is (const char *at, size_t n, const char *word)
{
    return strlen (word) == n && strncmp (at, word, n) == 0;
}

static void skip_spaces (Reader *self)
{
    while (*self->at == ' ')
        self->at++;
}

static bool names_table (const Reader *self, const char *word, size_t n)
{
    return word_is (word, n, "FROM") || word_is (word, n, "JOIN") || word_is (word, n, "INTO") ||
           word_is (word, n, "UPDATE") || (self->of_index && word_is (word, n, "ON")) ||
           (self->drops && word_is (word, n, "EXISTS"));
}

/* DO UPDATE SET names none, nor does FROM (SELECT …). */
static void put_schema (Reader *self)
{
    skip_spaces (self);
    size_t n = word_length (self->at);
    g_string_append_c (self->out, ' ');
    if (n > 0 && !word_is (self->at, n, "SET"))
        g_string_append_printf (self->out, "\"%s\".", self->schema);
}

static void take_parameter (Reader *self)
{
    self->at++;
    size_t n = strspn (self->at, "0123456789");
    g_string_append_c (self->out, '$');
    if (n == 0)
        g_string_append_printf (self->out, "%d", ++self->n_parameters);
    g_string_append_len (self->out, self->at, (gssize) n);
    self->at += n;
}

/* None is -1 for SQLite and NULL for PostgreSQL. */
static void take_limit (Reader *self)
{
    skip_spaces (self);
    g_string_append (self->out, " ");
    if (*self->at != '?')
        return;
    g_string_append (self->out, "nullif (CAST (");
    take_parameter (self);
    g_string_append (self->out, " AS bigint), -1)");
}

static void take_word (Reader *self)
{
    const char *word = self->at;
    size_t n = word_length (word);
    self->at += n;
    if (word_is (word, n, "INDEXED")) { /* INDEXED BY name */
        for (int i = 0; i < 2; i++) {
            skip_spaces (self);
            self->at += word_length (self->at);
        }
    } else if (word_is (word, n, "MINE")) {
        g_string_append_printf (self->out, "%" G_GINT64_FORMAT, self->member);
    } else if (word_is (word, n, "CROSS")) { /* which orders the tables, and has a condition */
        skip_spaces (self);
    } else {
        g_string_append_len (self->out, word, (gssize) n);
        if (names_table (self, word, n))
            put_schema (self);
        else if (word_is (word, n, "LIMIT"))
            take_limit (self);
    }
}

static void take_text (Reader *self)
{
    size_t n = 1 + strcspn (self->at + 1, "'") + 1;
    g_string_append_len (self->out, self->at, (gssize) n);
    self->at += n;
}

char *ecfs_pg_dialect (const char *sql, const char *schema, int64_t member)
{
    Reader self = {.at = sql,
                   .schema = schema,
                   .member = member,
                   .out = g_string_new (NULL),
                   .of_index = g_str_has_prefix (sql, "CREATE "),
                   .drops = g_str_has_prefix (sql, "DROP ")};
    while (*self.at != '\0') {
        if (is_word (*self.at))
            take_word (&self);
        else if (*self.at == '\'')
            take_text (&self);
        else if (*self.at == '?')
            take_parameter (&self);
        else
            g_string_append_c (self.out, *self.at++);
    }
    return g_string_free (self.out, FALSE);
}
