#include "endpoint/ssh/ssh_config.h"

#include "util/text.h"

#include <string.h>

#define DEFAULT_PORT  22
#define MAX_TIMEOUT_S 3600

/* Names end up in command lines and shell commands: a plain alphabet, and never something that looks like an option. */
static bool name_is_plain (const char *name, const char *more)
{
    if (name[0] == '\0' || name[0] == '-' || strlen (name) > 255)
        return false;
    for (const char *at = name; *at != '\0'; at++)
        if (!g_ascii_isalnum (*at) && strchr (more, *at) == NULL)
            return false;
    return true;
}

static bool check_names (const char *host, const char *user, unsigned port, GError **error)
{
    if (host == NULL || !name_is_plain (host, "._-:%"))
        return ecfs_fail (error, EINVAL, "\"%s\" is not a host name", host == NULL ? "" : host);
    if (user != NULL && !name_is_plain (user, "._-@+"))
        return ecfs_fail (error, EINVAL, "\"%s\" is not a user name", user);
    if (port > 65535)
        return ecfs_fail (error, EINVAL, "%u is not a port", port);
    return true;
}

bool ecfs_ssh_request_check (const EcfsSshRequest *request, GError **error)
{
    if (!check_names (request->host, request->user, request->port, error))
        return false;
    const char *jump = request->proxy_jump;
    if (jump != NULL && !name_is_plain (jump, "._-:%@,[]"))
        return ecfs_fail (error, EINVAL, "proxy_jump: \"%s\" is not [user@]host[:port][,...]", jump);
    const char *const files[] = {request->identity_file, request->known_hosts, request->password_file,
                                 request->config_file};
    const char *const keys[] = {"identity_file", "known_hosts", "password_file", "ssh_config"};
    for (size_t i = 0; i < G_N_ELEMENTS (files); i++)
        if (files[i] != NULL && files[i][0] == '\0')
            return ecfs_fail (error, EINVAL, "%s is empty", keys[i]);
    return true;
}

void ecfs_ssh_config_free (EcfsSshConfig *self)
{
    if (self == NULL)
        return;
    g_free (self->host);
    g_free (self->hostname);
    g_free (self->user);
    g_free (self->host_key_alias);
    g_strfreev (self->known_hosts);
    g_strfreev (self->identity_files);
    g_free (self->identity_agent);
    g_free (self->password_file);
    g_free (self->proxy_command);
    g_free (self->proxy_jump);
    g_free (self->ask_command);
    g_free (self->config_file);
    g_free (self->ciphers);
    g_free (self->macs);
    g_free (self->key_exchanges);
    g_free (self->host_key_algorithms);
    g_free (self->revoked_host_keys);
    g_free (self);
}

/* Expands "~/" and %-tokens; an unknown token stays as it is. */
static char *expand (const EcfsSshConfig *config, const char *text, const char *home)
{
    g_autoptr (GString) out = g_string_new (NULL);
    const char *at = text;
    if (home != NULL && g_str_has_prefix (text, "~/")) {
        g_string_append (out, home);
        at++;
    }
    for (; *at != '\0'; at++) {
        if (at[0] != '%' || at[1] == '\0') {
            g_string_append_c (out, *at);
            continue;
        }
        switch (*++at) {
        case '%':
            g_string_append_c (out, '%');
            break;
        case 'd':
            g_string_append (out, home != NULL ? home : "");
            break;
        case 'h':
            g_string_append (out, config->hostname);
            break;
        case 'n':
            g_string_append (out, config->host);
            break;
        case 'p':
            g_string_append_printf (out, "%u", config->port);
            break;
        case 'r':
            g_string_append (out, config->user);
            break;
        case 'u':
            g_string_append (out, g_get_user_name ());
            break;
        default:
            g_string_append_c (out, '%');
            g_string_append_c (out, *at);
        }
    }
    return g_string_free (g_steal_pointer (&out), FALSE);
}

/* What the lines of ssh -G say, before it is combined with the request. Borrowed from the lines. */
typedef struct Answer {
    const char *hostname, *user, *agent, *alias, *command, *jump;
    const char *ciphers, *macs, *key_exchanges, *host_key_algorithms, *revoked_host_keys;
    bool identities_only;
    unsigned port;
    int64_t timeout_us;
    GPtrArray *identities;  /* const char * */
    GPtrArray *known_hosts; /* char *, owned */
} Answer;

/* "none" is ssh's word for switched off. */
static const char *unless_none (const char *value)
{
    return g_ascii_strcasecmp (value, "none") == 0 ? NULL : value;
}

static void add_files (GPtrArray *files, const char *value)
{
    g_auto (GStrv) parts = g_strsplit (value, " ", -1);
    for (char **part = parts; *part != NULL; part++)
        if ((*part)[0] != '\0' && unless_none (*part) != NULL)
            g_ptr_array_add (files, g_strdup (*part));
}

/* What the user lets ssh do. False: the line is about something else. */
static bool take_policy (Answer *answer, const char *key, const char *value)
{
    if (strcmp (key, "ciphers") == 0)
        answer->ciphers = value;
    else if (strcmp (key, "macs") == 0)
        answer->macs = value;
    else if (strcmp (key, "kexalgorithms") == 0)
        answer->key_exchanges = value;
    else if (strcmp (key, "hostkeyalgorithms") == 0)
        answer->host_key_algorithms = value;
    else if (strcmp (key, "revokedhostkeys") == 0)
        answer->revoked_host_keys = unless_none (value);
    else if (strcmp (key, "identitiesonly") == 0)
        answer->identities_only = strcmp (value, "yes") == 0 || strcmp (value, "true") == 0;
    else
        return false;
    return true;
}

static void take_line (Answer *answer, const char *key, const char *value)
{
    guint64 number;
    if (take_policy (answer, key, value))
        return;
    if (strcmp (key, "hostname") == 0) {
        answer->hostname = value;
    } else if (strcmp (key, "user") == 0) {
        answer->user = value;
    } else if (strcmp (key, "port") == 0) {
        if (g_ascii_string_to_unsigned (value, 10, 1, 65535, &number, NULL))
            answer->port = (unsigned) number;
    } else if (strcmp (key, "identityfile") == 0) {
        if (unless_none (value) != NULL)
            g_ptr_array_add (answer->identities, (gpointer) value);
    } else if (strcmp (key, "identityagent") == 0) {
        answer->agent = value;
    } else if (strcmp (key, "userknownhostsfile") == 0 || strcmp (key, "globalknownhostsfile") == 0) {
        add_files (answer->known_hosts, value);
    } else if (strcmp (key, "proxycommand") == 0) {
        answer->command = unless_none (value);
    } else if (strcmp (key, "proxyjump") == 0) {
        answer->jump = unless_none (value);
    } else if (strcmp (key, "hostkeyalias") == 0) {
        answer->alias = value;
    } else if (strcmp (key, "connecttimeout") == 0) {
        if (g_ascii_string_to_unsigned (value, 10, 1, MAX_TIMEOUT_S, &number, NULL))
            answer->timeout_us = (int64_t) number * G_USEC_PER_SEC;
    }
}

static void take_lines (Answer *answer, char **lines)
{
    for (char **line = lines; *line != NULL; line++) {
        char *space = strchr (*line, ' ');
        if (space == NULL)
            continue;
        *space = '\0';
        const char *value = g_strstrip (space + 1);
        if (value[0] != '\0')
            take_line (answer, *line, value);
    }
}

static void default_answer (Answer *answer)
{
    static const char *const identities[] = {"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"};
    for (size_t i = 0; i < G_N_ELEMENTS (identities); i++)
        g_ptr_array_add (answer->identities, (gpointer) identities[i]);
    g_ptr_array_add (answer->known_hosts, g_strdup ("~/.ssh/known_hosts"));
    g_ptr_array_add (answer->known_hosts, g_strdup ("/etc/ssh/ssh_known_hosts"));
}

/* SSH_AUTH_SOCK, $NAME, a path, or none. */
static char *agent_socket (const EcfsSshConfig *config, const char *value, const char *home, const char *agent)
{
    if (value == NULL || strcmp (value, "SSH_AUTH_SOCK") == 0)
        return g_strdup (agent);
    if (unless_none (value) == NULL)
        return NULL;
    if (value[0] == '$')
        return g_strdup (g_getenv (value + 1));
    return expand (config, value, home);
}

static char **expand_all (const EcfsSshConfig *config, const GPtrArray *files, const char *home)
{
    GStrvBuilder *all = g_strv_builder_new ();
    for (guint i = 0; i < files->len; i++) {
        g_autofree char *file = expand (config, files->pdata[i], home);
        g_strv_builder_add (all, file);
    }
    char **strings = g_strv_builder_end (all);
    g_strv_builder_unref (all);
    return strings;
}

static char **one_file (const EcfsSshConfig *config, const char *file, const char *home)
{
    char **strings = g_new0 (char *, 2);
    strings[0] = expand (config, file, home);
    return strings;
}

static EcfsSshConfig *combine (const EcfsSshRequest *request, const Answer *answer, const char *home, const char *agent,
                               GError **error)
{
    g_autoptr (EcfsSshConfig) config = g_new0 (EcfsSshConfig, 1);
    config->host = g_strdup (request->host);
    config->hostname = g_strdup (answer->hostname != NULL ? answer->hostname : request->host);
    config->user = g_strdup (request->user != NULL  ? request->user
                             : answer->user != NULL ? answer->user
                                                    : g_get_user_name ());
    config->port = request->port != 0 ? request->port : answer->port != 0 ? answer->port : DEFAULT_PORT;
    if (!check_names (config->hostname, config->user, config->port, error))
        return NULL;
    config->connect_timeout_us = answer->timeout_us;
    config->host_key_alias = g_strdup (answer->alias);
    config->known_hosts = request->known_hosts != NULL ? one_file (config, request->known_hosts, home)
                                                       : expand_all (config, answer->known_hosts, home);
    config->ciphers = g_strdup (answer->ciphers);
    config->macs = g_strdup (answer->macs);
    config->key_exchanges = g_strdup (answer->key_exchanges);
    config->host_key_algorithms = g_strdup (answer->host_key_algorithms);
    if (answer->revoked_host_keys != NULL)
        config->revoked_host_keys = expand (config, answer->revoked_host_keys, home);
    config->identities_only = answer->identities_only;
    config->identity_first = request->identity_file != NULL;
    config->identity_files = request->identity_file != NULL ? one_file (config, request->identity_file, home)
                                                            : expand_all (config, answer->identities, home);
    config->identity_agent = agent_socket (config, answer->agent, home, agent);
    config->config_file = g_strdup (request->config_file);
    config->ask_command = ecfs_ssh_ask_command (request);
    if (request->password_file != NULL)
        config->password_file = expand (config, request->password_file, home);
    if (request->proxy_jump != NULL)
        config->proxy_jump = g_strdup (unless_none (request->proxy_jump));
    else if (answer->command != NULL)
        config->proxy_command = expand (config, answer->command, home);
    else
        config->proxy_jump = g_strdup (answer->jump);
    if (config->proxy_jump != NULL && config->proxy_jump[0] == '-')
        return g_set_error (error, ECFS_ERROR, EINVAL, "ProxyJump \"%s\" is not a host", config->proxy_jump), NULL;
    return g_steal_pointer (&config);
}

EcfsSshConfig *ecfs_ssh_config_parse (const EcfsSshRequest *request, const char *text, const char *home,
                                      const char *agent, GError **error)
{
    if (!ecfs_ssh_request_check (request, error))
        return NULL;
    Answer answer = {.identities = g_ptr_array_new (), .known_hosts = g_ptr_array_new_with_free_func (g_free)};
    g_auto (GStrv) lines = g_strsplit (text == NULL ? "" : text, "\n", -1);
    if (text == NULL)
        default_answer (&answer);
    else
        take_lines (&answer, lines);
    EcfsSshConfig *config = combine (request, &answer, home, agent, error);
    if (config != NULL)
        config->without_ssh = text == NULL;
    g_ptr_array_unref (answer.identities);
    g_ptr_array_unref (answer.known_hosts);
    return config;
}

void ecfs_ssh_request_words (const EcfsSshRequest *request, GPtrArray *words)
{
    if (request->config_file != NULL) {
        g_ptr_array_add (words, g_strdup ("-F"));
        g_ptr_array_add (words, g_strdup (request->config_file));
    }
    if (request->port != 0)
        g_ptr_array_add (words, g_strdup_printf ("-p%u", request->port));
    if (request->user != NULL) {
        g_ptr_array_add (words, g_strdup ("-l"));
        g_ptr_array_add (words, g_strdup (request->user));
    }
    g_ptr_array_add (words, g_strdup ("--"));
    g_ptr_array_add (words, g_strdup (request->host));
}

static void append_word (GString *command, const char *prefix, const char *word)
{
    g_autofree char *whole = g_strconcat (prefix, word, NULL);
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
    g_autofree char *quoted = whole[strspn (whole, plain)] == '\0' ? g_strdup (whole) : g_shell_quote (whole);
    g_string_append_printf (command, " %s", quoted);
}

char *ecfs_ssh_ask_command (const EcfsSshRequest *request)
{
    g_autoptr (GString) command = g_string_new ("ssh");
    if (request->config_file != NULL) {
        append_word (command, "", "-F");
        append_word (command, "", request->config_file);
    }
    if (request->identity_file != NULL) {
        append_word (command, "", "-i");
        append_word (command, "", request->identity_file);
    }
    if (request->known_hosts != NULL)
        append_word (command, "-oUserKnownHostsFile=", request->known_hosts);
    if (request->proxy_jump != NULL)
        append_word (command, "-oProxyJump=", request->proxy_jump);
    if (request->port != 0)
        g_string_append_printf (command, " -p %u", request->port);
    if (request->user != NULL) {
        append_word (command, "", "-l");
        append_word (command, "", request->user);
    }
    append_word (command, "", request->host);
    return g_string_free (g_steal_pointer (&command), FALSE);
}

/* The output of ssh -G; *ret_text NULL when there is no ssh program. */
static bool ask_ssh (const EcfsSshRequest *request, char **ret_text, GError **error)
{
    g_autoptr (GPtrArray) words = g_ptr_array_new_with_free_func (g_free);
    g_ptr_array_add (words, g_strdup ("ssh"));
    g_ptr_array_add (words, g_strdup ("-G"));
    ecfs_ssh_request_words (request, words);
    g_ptr_array_add (words, NULL);

    g_autofree char *out = NULL;
    g_autofree char *complaint = NULL;
    g_autoptr (GError) problem = NULL;
    int status = 0;
    /* A proxy command that another thread starts now would inherit the pipes, and their end would never come. */
    if (!g_spawn_sync (NULL, (char **) words->pdata, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_CLOEXEC_PIPES, NULL, NULL,
                       &out, &complaint, &status, &problem)) {
        if (!g_error_matches (problem, G_SPAWN_ERROR, G_SPAWN_ERROR_NOENT))
            return ecfs_fail (error, EIO, "ssh -G: %s", problem->message);
        *ret_text = NULL;
        return true;
    }
    if (!g_spawn_check_wait_status (status, NULL)) {
        g_autofree char *said = ecfs_text_clean (g_strstrip (g_strdelimit (complaint, "\r\n", ' ')), ECFS_WORDS_MAX);
        return ecfs_fail (error, EINVAL, "ssh -G -- %s failed: %s", request->host, said);
    }
    *ret_text = g_steal_pointer (&out);
    return true;
}

EcfsSshConfig *ecfs_ssh_config_resolve (const EcfsSshRequest *request, GError **error)
{
    g_autofree char *text = NULL;
    if (!ecfs_ssh_request_check (request, error) || !ask_ssh (request, &text, error))
        return NULL;
    return ecfs_ssh_config_parse (request, text, g_get_home_dir (), g_getenv ("SSH_AUTH_SOCK"), error);
}
