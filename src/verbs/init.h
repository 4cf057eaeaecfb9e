/* Configurations as they are given in words, on command lines and by programs: what init and recover share. */
#ifndef ECFS_VERBS_INIT_H
#define ECFS_VERBS_INIT_H

#include "archive/config.h"

/** Sets a key of [archive] from "KEY=VALUE". */
bool ecfs_config_add_setting (EcfsConfig *config, const char *setting, GError **error);

/** Adds an endpoint from "[NAME=]URL[,KEY=VALUE...]". */
bool ecfs_config_add_endpoint_text (EcfsConfig *config, const char *text, GError **error);

/** What ecfs_init () makes an archive with; arguments and errors as there. */
EcfsConfig *ecfs_init_config (const char *code, const char *const *endpoints, const char *const *settings,
                              GError **error);

#endif
