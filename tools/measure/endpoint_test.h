/* `ecfs endpoint test`: whether endpoints work, and how fast, with what stands in the way when they do not. */
#ifndef ECFS_TOOL_ENDPOINT_TEST_H
#define ECFS_TOOL_ENDPOINT_TEST_H

#include "tool.h"

/** Tests the endpoints of an archive, or those @names; appends an object per endpoint to @results. */
bool endpoint_test_archive (const char *directory, char **names, int n_names, JsonArray *results, GError **error);

/** Tests what "[NAME=]URL[,KEY=VALUE...]" says, each of NULL-terminated @specs, whatever archive it belongs to. */
bool endpoint_test_urls (char **specs, JsonArray *results, GError **error);

/** Prints results; false when an endpoint does not work. */
bool endpoint_test_print (const char *verb, JsonArray *results, bool json);

#endif
