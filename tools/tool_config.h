/* Configurations from the command line: what init and recover share. */
#ifndef ECFS_TOOL_CONFIG_H
#define ECFS_TOOL_CONFIG_H

#include "archive/config.h"

/** Sets a key of [archive] from "KEY=VALUE". */
bool tool_add_setting (EcfsConfig *config, const char *setting, GError **error);

/** Adds an endpoint from "[NAME=]URL[,KEY=VALUE...]". */
bool tool_add_endpoint (EcfsConfig *config, const char *text, GError **error);

#endif
