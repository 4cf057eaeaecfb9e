/*
 * How to reach and authenticate at an SSH server: what the URL and the endpoint's options say, completed by the user's
 * OpenSSH configuration as `ssh -G` tells it (aliases, jump hosts, identity files, known_hosts files).
 */
#ifndef ECFS_ENDPOINT_SSH_SSH_CONFIG_H
#define ECFS_ENDPOINT_SSH_SSH_CONFIG_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct EcfsSshConfig {
    char *host;     /* as the URL names it */
    char *hostname; /* what to connect to */
    unsigned port;  /* 1 to 65535 */
    char *user;
    char *host_key_alias;       /* name to look up in known_hosts instead; may be NULL */
    char **known_hosts;         /* files; absent ones are skipped */
    char **identity_files;      /* private keys; absent ones are skipped */
    bool identity_first;        /* the key was given for this endpoint: before the agent */
    char *identity_agent;       /* socket; NULL: no agent */
    char *password_file;        /* may be NULL */
    char *proxy_command;        /* for the shell, %-tokens already replaced; may be NULL */
    char *proxy_jump;           /* may be NULL */
    char *config_file;          /* for ssh -F; may be NULL */
    char *ask_command;          /* for a shell: shows the host key and asks whether it is right, as ssh does */
    int64_t connect_timeout_us; /* 0: not said */
    /* What ssh -G says of the user's policy, as it says it; NULL: nothing */
    char *ciphers, *macs, *key_exchanges, *host_key_algorithms;
    char *revoked_host_keys; /* file */
    bool identities_only;    /* keys of the agent only where a file names them */
    bool without_ssh;        /* the ssh program is missing, so ~/.ssh/config was not looked at */
} EcfsSshConfig;

/** What URL and options say; borrowed strings, NULL and 0 where they say nothing. */
typedef struct EcfsSshRequest {
    const char *host;
    unsigned port;
    const char *user;
    const char *identity_file;
    const char *known_hosts;
    const char *password_file;
    const char *proxy_jump;
    const char *config_file;
} EcfsSshRequest;

/** Checks what can be checked without looking at the world; EINVAL names the part that is wrong. */
bool ecfs_ssh_request_check (const EcfsSshRequest *request, GError **error);

/** Adds what ssh needs of @request to find its host: options, "--", and the host as the last word; g_free () each. */
void ecfs_ssh_request_words (const EcfsSshRequest *request, GPtrArray *words);

/**
 * A command for a shell that connects as @request says, so that ssh shows an unknown host key, asks, and notes it where
 * it will be looked up: under its alias, by way of its jump host; g_free ().
 */
char *ecfs_ssh_ask_command (const EcfsSshRequest *request);

/**
 * Runs `ssh -G` and combines its answer with @request, which wins. Where there is no ssh program, defaults are used and
 * without_ssh is set. EINVAL when ssh does not like the host or its configuration, with its words.
 */
EcfsSshConfig *ecfs_ssh_config_resolve (const EcfsSshRequest *request, GError **error);

/**
 * The pure part of it: takes @text, the output of ssh -G or NULL for none, with @home and @agent (SSH_AUTH_SOCK) from
 * the environment; both may be NULL. Unknown lines are ignored. EINVAL where a value cannot be used.
 */
EcfsSshConfig *ecfs_ssh_config_parse (const EcfsSshRequest *request, const char *text, const char *home,
                                      const char *agent, GError **error);

/** NULL is accepted. */
void ecfs_ssh_config_free (EcfsSshConfig *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsSshConfig, ecfs_ssh_config_free)

#endif
