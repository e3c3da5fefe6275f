/* Whether a text is well-formed XML, as far as pictures need it: elements that nest, attributes in
 * quotes and not twice, entities that XML knows.
 *
 *   char why[LS_XML_WHY];
 *   if (!xml_is_well_formed(svg, why)) fail_msg("%s", why);
 */
#ifndef LS_TESTS_SUPPORT_XML_H
#define LS_TESTS_SUPPORT_XML_H

#include <stdbool.h>

enum { LS_XML_WHY = 160 };

bool xml_is_well_formed(const char *text, char why[LS_XML_WHY]);

/* How often `what` is in `text`. */
int text_count(const char *text, const char *what);

/* The number of an attribute of the element at `at`: attribute(at, "x"). NAN where it has none. */
double xml_attribute(const char *at, const char *name);

#endif
