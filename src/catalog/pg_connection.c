/* Connections to PostgreSQL, and what it says against something. */
#include "catalog/catalog.h"
#include "catalog/pg_exchange.h"

#include <libpq-fe.h>

#define OLDEST_VERSION 150000

char *ecfs_pg_version (void)
{
    return g_strdup_printf ("%d.%d", PQlibVersion () / 10000, PQlibVersion () % 10000);
}

/* Locations */

bool ecfs_pg_is_location (const char *path)
{
    return g_str_has_prefix (path, "postgresql://") || g_str_has_prefix (path, "postgres://") ||
           g_str_has_prefix (path, "service=");
}

static const char *option_of (const PQconninfoOption *options, const char *key)
{
    for (; options != NULL && options->keyword != NULL; options++)
        if (strcmp (options->keyword, key) == 0)
            return options->val != NULL && *options->val != '\0' ? options->val : NULL;
    return NULL;
}

/* What libpq finds wrong may quote a password, where a character in it ends another part. */
bool ecfs_pg_check_location (const char *text, GError **error)
{
    char *why = NULL;
    PQconninfoOption *options = strchr (text, '#') == NULL ? PQconninfoParse (text, &why) : NULL;
    const char *port = option_of (options, "port");
    bool secret = option_of (options, "password") != NULL || option_of (options, "sslpassword") != NULL;
    bool good = options != NULL && (port == NULL || strspn (port, "0123456789,") == strlen (port));
    PQconninfoFree (options); /* NULL is accepted, also by the next */
    PQfreemem (why);
    if (good && !secret)
        return true;
    return secret ? ecfs_fail (error, EINVAL, "no password belongs there: put it into ~/.pgpass, or set passfile")
                  : ecfs_fail (error, EINVAL,
                               "it is no connection string that libpq takes, or has a '#'; no password belongs there");
}

/* Without user, password and options. */
static char *display_of (const char *conninfo)
{
    PQconninfoOption *options = PQconninfoParse (conninfo, NULL);
    const char *host = option_of (options, "host"), *port = option_of (options, "port");
    const char *name = option_of (options, "dbname"), *service = option_of (options, "service");
    bool is_socket = host == NULL || *host == '/';
    if (port != NULL && strspn (port, ",") == strlen (port)) /* libpq's for as many hosts */
        port = NULL;
    char *text = options == NULL ? g_strdup ("in PostgreSQL")
                 : service != NULL
                     ? g_strdup_printf ("service=%s", service)
                     : g_strdup_printf ("postgresql://%s%s%s/%s", is_socket ? "" : host, port == NULL ? "" : ":",
                                        port == NULL ? "" : port, name == NULL ? "" : name);
    PQconninfoFree (options); /* NULL is accepted */
    return text;
}

char *ecfs_pg_display (const char *location)
{
    g_autofree char *conninfo = g_strndup (location, strcspn (location, "#"));
    return display_of (conninfo);
}

char *ecfs_pg_schema (const EcfsUuid *archive)
{
    char hex[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (archive, hex);
    g_auto (GStrv) groups = g_strsplit (hex, "-", -1);
    g_autofree char *joined = g_strjoinv ("", groups);
    return g_strconcat ("ecfs_", joined, NULL);
}

static bool parse_uuids (Pg *self, const char *text, GError **error)
{
    g_auto (GStrv) parts = g_strsplit (text, ":", 2);
    EcfsUuid archive;
    self->holder = ecfs_uuid_new ();
    if (parts[0] == NULL || !ecfs_uuid_parse (parts[0], &archive) ||
        (parts[1] != NULL && !ecfs_uuid_parse (parts[1], &self->holder)))
        return ecfs_fail (error, EINVAL, "catalog %s: '%s' is not the UUID of an archive", self->name, text);
    self->schema = ecfs_pg_schema (&archive);
    return true;
}

Pg *ecfs_pg_new (const char *location, bool readonly, GError **error)
{
    Pg *self = g_new0 (Pg, 1);
    ecfs_pg_exchange_init (self);
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
        g_free (self->statements[i].name);
        g_free (self->statements[i].sql);
        g_free (self->statements[i].types);
        ecfs_pg_variant_clear (&self->statements[i].seen);
        ecfs_pg_variant_clear (&self->statements[i].same);
    }
    PQfinish (self->conn); /* NULL is accepted */
    g_clear_pointer (&self->sights, g_hash_table_unref);
    ecfs_pg_exchange_clear (self);
    g_free (self->conninfo);
    g_free (self->name);
    g_free (self->schema);
    g_free (self->session);
    g_free (self->identity);
    g_free (self);
}

/* Errors */

#define POOLER                                                                                                         \
    "a pooler between here and the server gives each transaction another connection: connect to the server itself, "   \
    "or have the pooler keep a connection for each client (PgBouncer: pool_mode = session)"

static int errno_of (const char *state)
{
    static const struct {
        const char *state; /* or how it begins */
        int code;
    } codes[] = {
        {"53100", ENOSPC},  {"53200", ENOMEM},    {"53300", EBUSY},   {"42501", EACCES},
        {"28", EACCES},     {"25006", EROFS},     {"55P03", EBUSY},   {"40", EBUSY},
        {"26000", ENOTSUP}, {"42704", ENOTSUP},   {"22P02", ENOTSUP}, /* what the connection was told is gone */
        {"22", EINVAL},     {"57014", ETIMEDOUT}, {"23", EBADMSG},    /* operations look before they write: the rows
                                                                         contradict each other */
        {"42", EBADMSG},                                              /* a statement does not fit the tables */
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
    g_strdelimit (text, "\n\t", ' ');
    int code = errno_of (result == NULL ? NULL : PQresultErrorField (result, PG_DIAG_SQLSTATE));
    g_autofree char *anew = g_strdup_printf ("; the catalog is damaged: " ECFS_PG_ADVICE, self->schema, self->schema);
    const char *advice = code == EBADMSG   ? anew
                         : code == ENOSPC  ? "; make room on the database server's disk"
                         : code == EROFS   ? "; is it a standby? Name the server that takes changes"
                         : code == ENOTSUP ? "; " POOLER
                                           : "";
    return ecfs_fail (error, code, "catalog %s: %s: %s%s", self->name, what, text, advice);
}

/* Connecting */

bool ecfs_pg_is_away (const Pg *self)
{
    return self->conn == NULL || self->is_stuck || PQstatus (self->conn) == CONNECTION_BAD;
}

/* A warning at COMMIT means that a standby may not have it; others are for whoever looks closely. */
static void take_notice (void *user, const PGresult *result)
{
    Pg *self = user;
    const char *state = PQresultErrorField (result, PG_DIAG_SQLSTATE);
    g_autofree char *text = g_strchomp (g_strdup (PQresultErrorMessage (result)));
    self->is_warned = self->is_warned || g_strcmp0 (state, "01000") == 0;
    if (g_strcmp0 (state, "01000") == 0)
        g_warning ("catalog %s: %s", self->name, text);
    else
        g_debug ("catalog %s: %s", self->name, text);
}

/* A service's options are known to a connection that begins, before anything is sent. "prefer" is libpq's own. */
static bool service_says_mode (const char *conninfo)
{
    const char *keys[] = {"dbname", NULL}, *values[] = {conninfo, NULL};
    PGconn *begun = PQconnectStartParams (keys, values, 1);
    PQconninfoOption *options = PQconninfo (begun);
    bool says = g_strcmp0 (option_of (options, "sslmode"), "prefer") != 0;
    PQconninfoFree (options); /* NULL is accepted, also by the next */
    PQfinish (begun);
    return says;
}

/* Passwords and catalogs go to the right server only, unless whoever wrote the location said otherwise. */
static bool wants_verified (const char *conninfo)
{
    PQconninfoOption *options = PQconninfoParse (conninfo, NULL);
    bool says = option_of (options, "sslmode") != NULL || g_getenv ("PGSSLMODE") != NULL ||
                (option_of (options, "service") != NULL && service_says_mode (conninfo));
    PQconninfoFree (options); /* NULL is accepted */
    return !says;
}

static PGconn *begin_connection (Pg *self)
{
    if (!self->is_asked)
        self->is_verified = wants_verified (self->conninfo);
    self->is_asked = true;
    bool verified = self->is_verified;
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

#define SET(key, value) "set_config ('" key "', '" value "', false), "
/* Rows are found by keys, also while the server thinks that a table is empty; a commit is on a disk, whatever the
 * server's configuration says later; and a transaction of ours whose connection is gone without a word keeps others,
 * and this process itself, from the archive for a short time only. */
static const char setup[] = "SELECT " SET ("client_min_messages", "warning") SET ("search_path", "") SET (
    "enable_seqscan",
    "off") SET ("jit",
                "off") SET ("plan_cache_mode",
                            "force_generic_plan") SET ("statement_timeout",
                                                       "0") SET ("lock_timeout",
                                                                 "20s") SET ("idle_session_timeout",
                                                                             "0") SET ("default_transaction_read_only",
                                                                                       "off")
    SET ("tcp_keepalives_idle", "10") SET ("tcp_keepalives_interval", "5") SET ("tcp_keepalives_count", "3") SET (
        "tcp_user_timeout",
        "15000") "set_config ('synchronous_commit', CASE current_setting ('synchronous_commit') WHEN 'off' THEN 'on' "
                 "ELSE current_setting ('synchronous_commit') END, false), "
                 "set_config ('idle_in_transaction_session_timeout', ";

/* Behind a pooler the server's process is not the one that was announced. If it gives each transaction any connection,
 * another client, who begins one and stays in it, has got the one that this client had, or this one gets another now.
 */
static bool check_pooler (Pg *self, const char *process, GError **error)
{
    if (strtol (process, NULL, 10) == PQbackendPID (self->conn))
        return true;
    PGconn *other = begin_connection (self);
    autoresult *theirs = PQexec (other, "BEGIN; SELECT pg_backend_pid ()");
    g_autofree char *sql = g_strdup_printf ("SELECT coalesce (current_setting ('ecfs.of_%s', true), '')", self->tag);
    bool is_taken = PQresultStatus (theirs) == PGRES_TUPLES_OK && strcmp (PQgetvalue (theirs, 0, 0), process) == 0;
    autoresult *kept = is_taken ? NULL : ecfs_pg_ask_sql (self, sql, "connecting", error);
    PQfinish (other);
    if (!is_taken && kept == NULL)
        return false;
    return (kept != NULL && strcmp (PQgetvalue (kept, 0, 0), "on") == 0) ||
           ecfs_fail (error, ENOTSUP, "catalog %s: " POOLER, self->name);
}

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
    /* Who copies may wait for what takes the copy. */
    g_autofree char *sql = g_strdup_printf ("%s%s, false), set_config ('ecfs.of_%s', 'on', false), pg_backend_pid ()",
                                            setup, self->readonly ? "'0'" : "'15s'", self->tag);
    autoresult *set = ecfs_pg_ask_sql (self, sql, "connecting", error);
    return set != NULL && check_pooler (self, PQgetvalue (set, 0, PQnfields (set) - 1), error);
}

/* A standby that takes over begins another timeline, and tables that are restored are others. A server that does not
 * say is taken for the same. */
static void look_whether_same (Pg *self)
{
    g_autofree char *sql =
        g_strdup_printf ("SELECT (pg_control_system ()).system_identifier || '-' || "
                         "substr (pg_walfile_name (pg_current_wal_lsn ()), 1, 8) || '-' || "
                         "coalesce (CAST (CAST (to_regclass ('\"%s\".counters') AS oid) AS text), 'none')",
                         self->schema);
    g_autoptr (GError) error = NULL;
    autoresult *row = self->is_member ? ecfs_pg_ask_sql (self, sql, "looking which database it is", &error) : NULL;
    if (error != NULL)
        g_info ("%s", error->message);
    if (row == NULL || PQntuples (row) != 1)
        return;
    const char *identity = PQgetvalue (row, 0, 0);
    self->is_doubtful = self->is_doubtful || (self->identity != NULL && strcmp (self->identity, identity) != 0);
    g_free (self->identity);
    self->identity = g_strdup (identity);
}

void ecfs_pg_hang_up (Pg *self)
{
    PQfinish (self->conn); /* NULL is accepted */
    self->conn = NULL;
}

bool ecfs_pg_connect (Pg *self, GError **error)
{
    if (!ecfs_pg_is_away (self))
        return true;
    ecfs_pg_hang_up (self);
    self->end_read = self->begin_read = self->prepared = self->is_stuck = false;
    ecfs_pg_forget (self);
    self->n_begun++;
    self->conn = begin_connection (self);
    if (PQstatus (self->conn) != CONNECTION_OK) {
        const char *what = PQconnectionNeedsPassword (self->conn) || PQconnectionUsedPassword (self->conn)
                               ? "connecting (its password is looked for in ~/.pgpass)"
                               : "connecting";
        return ecfs_pg_fail (self, NULL, what, error);
    }
    (void) PQsetNoticeReceiver (self->conn, take_notice, self); /* the former is libpq's own */
    self->n_made++;
    if (check_server (self, error) && ecfs_pg_check_same (self, error)) {
        look_whether_same (self);
        return !ecfs_pg_is_away (self) || ecfs_pg_fail (self, NULL, "connecting", error);
    }
    ecfs_pg_hang_up (self);
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
    atomic_fetch_add (&self->n_trips, 1);
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
    atomic_fetch_add (&self->n_trips, 1);
    PGresult *result = PQexec (self->conn, sql);
    if (PQresultStatus (result) == PGRES_TUPLES_OK)
        return result;
    told (ecfs_pg_fail (self, result, what, error));
    PQclear (result);
    return NULL;
}
