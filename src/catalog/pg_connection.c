/* Connections to PostgreSQL, and what it says against something. */
#include "catalog/catalog.h"
#include "catalog/pg_priv.h"

#include <libpq-fe.h>

#define OLDEST_VERSION 150000

/* Locations */

bool ecfs_pg_is_location (const char *path)
{
    return g_str_has_prefix (path, "postgresql://") || g_str_has_prefix (path, "postgres://") ||
           g_str_has_prefix (path, "service=");
}

/* Without user, password and options. */
static char *display_of (const char *conninfo)
{
    if (g_str_has_prefix (conninfo, "service="))
        return g_strndup (conninfo, strcspn (conninfo, " "));
    const char *hosts = strstr (conninfo, "://") + 3;
    size_t n = strcspn (hosts, "?");
    const char *user = memrchr (hosts, '@', n);
    size_t n_user = user == NULL ? 0 : (size_t) (user + 1 - hosts);
    return g_strdup_printf ("postgresql://%.*s", (int) (n - n_user), hosts + n_user);
}

char *ecfs_pg_display (const char *location)
{
    g_autofree char *conninfo = g_strndup (location, strcspn (location, "#"));
    return display_of (conninfo);
}

static bool parse_uuids (Pg *self, const char *text, GError **error)
{
    g_auto (GStrv) parts = g_strsplit (text, ":", 2);
    EcfsUuid archive;
    self->holder = ecfs_uuid_new ();
    if (parts[0] == NULL || !ecfs_uuid_parse (parts[0], &archive) ||
        (parts[1] != NULL && !ecfs_uuid_parse (parts[1], &self->holder)))
        return ecfs_fail (error, EINVAL, "catalog %s: '%s' is not the UUID of an archive", self->name, text);
    char hex[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&archive, hex);
    g_auto (GStrv) groups = g_strsplit (hex, "-", -1);
    g_autofree char *joined = g_strjoinv ("", groups);
    self->schema = g_strconcat ("ecfs_", joined, NULL);
    return true;
}

Pg *ecfs_pg_new (const char *location, bool readonly, GError **error)
{
    Pg *self = g_new0 (Pg, 1);
    size_t n = strcspn (location, "#");
    self->conninfo = g_strndup (location, n);
    self->name = display_of (self->conninfo);
    self->readonly = readonly;
    if (parse_uuids (self, location[n] == '#' ? location + n + 1 : "", error))
        return self;
    ecfs_pg_free (self);
    return NULL;
}

void ecfs_pg_free (Pg *self)
{
    for (int i = 0; i < N_STATEMENTS; i++) {
        g_free (self->statements[i].sql);
        g_free (self->statements[i].types);
    }
    PQfinish (self->conn); /* NULL is accepted */
    g_free (self->conninfo);
    g_free (self->name);
    g_free (self->schema);
    g_free (self->session);
    g_free (self);
}

/* Errors */

static int errno_of (const char *state)
{
    static const struct {
        const char *state; /* or how it begins */
        int code;
    } codes[] = {
        {"53100", ENOSPC},  {"53200", ENOMEM},    {"53300", EBUSY}, {"42501", EACCES},
        {"28", EACCES},     {"25006", EROFS},     {"55P03", EBUSY}, {"40", EBUSY},
        {"22", EINVAL},     {"57014", ETIMEDOUT}, {"23", EBADMSG}, /* operations look before they write: the rows
                                                                      contradict each other */
        {"42", EBADMSG},                                           /* a statement does not fit the tables */
        {"XX001", EBADMSG}, {"XX002", EBADMSG},
    };
    for (size_t i = 0; state != NULL && i < G_N_ELEMENTS (codes); i++)
        if (g_str_has_prefix (state, codes[i].state))
            return codes[i].code;
    return EIO;
}

bool ecfs_pg_fail (const Pg *self, const PGresult *result, const char *what, GError **error)
{
    const char *primary = result == NULL ? NULL : PQresultErrorField (result, PG_DIAG_MESSAGE_PRIMARY);
    const char *all = primary != NULL  ? primary
                      : result == NULL ? PQerrorMessage (self->conn)
                                       : PQresultErrorMessage (result);
    g_autofree char *text = g_strchomp (g_strdup (*all == '\0' ? "it does not answer" : all));
    g_strdelimit (text, "\n", ' ');
    int code = errno_of (result == NULL ? NULL : PQresultErrorField (result, PG_DIAG_SQLSTATE));
    const char *advice = code == EBADMSG  ? "; the catalog is damaged: " ECFS_CATALOG_ADVICE
                         : code == ENOSPC ? "; make room on the database server's disk"
                         : code == EROFS  ? "; is it a standby? Name the server that takes changes"
                                          : "";
    return ecfs_fail (error, code, "catalog %s: %s: %s%s", self->name, what, text, advice);
}

/* Connecting */

bool ecfs_pg_is_away (const Pg *self)
{
    return self->conn == NULL || PQstatus (self->conn) == CONNECTION_BAD;
}

/* A warning at COMMIT means that a standby may not have it; others are for whoever looks closely. */
static void take_notice (void *user, const PGresult *result)
{
    const Pg *self = user;
    const char *state = PQresultErrorField (result, PG_DIAG_SQLSTATE);
    g_autofree char *text = g_strchomp (g_strdup (PQresultErrorMessage (result)));
    if (g_strcmp0 (state, "01000") == 0)
        g_warning ("catalog %s: %s", self->name, text);
    else
        g_debug ("catalog %s: %s", self->name, text);
}

/* Passwords and catalogs go to the right server only, unless whoever wrote the location said otherwise. */
static bool wants_verified (const char *conninfo)
{
    return !g_str_has_prefix (conninfo, "service=") && strstr (conninfo, "sslmode=") == NULL &&
           g_getenv ("PGSSLMODE") == NULL;
}

static PGconn *begin_connection (const Pg *self)
{
    bool verified = wants_verified (self->conninfo);
    /* What is behind dbname was not said there. */
    const char *keys[] = {"connect_timeout",
                          "tcp_user_timeout",
                          "keepalives_idle",
                          "keepalives_interval",
                          "fallback_application_name",
                          verified ? "sslmode" : "connect_timeout",
                          "dbname",
                          "client_encoding",
                          NULL};
    const char *values[] = {"5",    "15000", "10", "5", "ecfs", verified ? "verify-full" : "5", self->conninfo,
                            "UTF8", NULL};
    return PQconnectdbParams (keys, values, 1);
}

/* Rows are found by keys, also while the server thinks that a table is empty; and a commit is on a disk. */
static const char setup[] =
    "SELECT set_config ('client_min_messages', 'warning', false), set_config ('enable_seqscan', 'off', false), "
    "set_config ('jit', 'off', false), "
    "set_config ('plan_cache_mode', 'force_generic_plan', false), "
    "set_config ('idle_in_transaction_session_timeout', '0', false), set_config ('statement_timeout', '0', false), "
    "CASE WHEN current_setting ('synchronous_commit') = 'off' THEN set_config ('synchronous_commit', 'on', false) END";

static bool check_server (Pg *self, GError **error)
{
    int version = PQserverVersion (self->conn);
    const char *encoding = PQparameterStatus (self->conn, "server_encoding");
    const char *standby = PQparameterStatus (self->conn, "in_hot_standby");
    if (version < OLDEST_VERSION)
        return ecfs_fail (error, ENOTSUP, "catalog %s: the server is PostgreSQL %d; 15 or later is needed", self->name,
                          version / 10000);
    if (g_strcmp0 (encoding, "UTF8") != 0)
        return ecfs_fail (error, ENOTSUP, "catalog %s: the database has the encoding %s: make one with UTF8",
                          self->name, encoding == NULL ? "?" : encoding);
    if (g_strcmp0 (standby, "on") == 0)
        return ecfs_fail (error, EROFS,
                          "catalog %s: the server is a standby, which may lag: name the one that takes "
                          "changes (target_session_attrs=read-write finds it)",
                          self->name);
    autoresult *set = ecfs_pg_ask_sql (self, setup, "connecting", error);
    return set != NULL;
}

bool ecfs_pg_connect (Pg *self, GError **error)
{
    if (!ecfs_pg_is_away (self))
        return true;
    PQfinish (self->conn); /* NULL is accepted */
    self->begin_read = self->savepoint = self->release = self->prepared = false;
    self->conn = begin_connection (self);
    if (PQstatus (self->conn) != CONNECTION_OK)
        return ecfs_pg_fail (self, NULL, "connecting", error);
    (void) PQsetNoticeReceiver (self->conn, take_notice, self); /* the former is libpq's own */
    if (check_server (self, error))
        return true;
    PQfinish (self->conn);
    self->conn = NULL;
    return false;
}

/* SQL */

void ecfs_pg_clear (PGresult **result)
{
    PQclear (*result); /* NULL is accepted */
    *result = NULL;
}

bool ecfs_pg_run_sql (Pg *self, const char *sql, const char *what, uint64_t *ret_changes, GError **error)
{
    autoresult *result = PQexec (self->conn, sql);
    ExecStatusType status = PQresultStatus (result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        return ecfs_pg_fail (self, result, what, error);
    if (ret_changes != NULL)
        *ret_changes = g_ascii_strtoull (PQcmdTuples (result), NULL, 10);
    return true;
}

PGresult *ecfs_pg_ask_sql (Pg *self, const char *sql, const char *what, GError **error)
{
    PGresult *result = PQexec (self->conn, sql);
    if (PQresultStatus (result) == PGRES_TUPLES_OK)
        return result;
    told (ecfs_pg_fail (self, result, what, error));
    PQclear (result);
    return NULL;
}
