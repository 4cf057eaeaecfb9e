/* Configurations as they are given in words, on command lines and by programs: what init and recover share. */
#ifndef ECFS_VERBS_INIT_H
#define ECFS_VERBS_INIT_H

#include "archive/config.h"

/** Sets a key of [archive] from "KEY=VALUE". */
bool ecfs_config_add_setting (EcfsConfig *config, const char *setting, GError **error);

/** Adds an endpoint from "[NAME=]URL[,KEY=VALUE...]". */
bool ecfs_config_add_endpoint_text (EcfsConfig *config, const char *text, GError **error);

#endif
