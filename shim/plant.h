/* Planted faults (plants.def): how the tests make the shim wrong in one place at a time.
 *
 * In the product AC_PLANTED is the constant false and leaves no code.  The library of the tests
 * is built from the same sources with AC_PLANTS and brings `ac_plant`, the number of the chosen
 * fault or 0, which is set before anything else happens. */
#ifndef AC_PLANT_H
#define AC_PLANT_H

enum {
#define PLANT(number, name, text) AC_PLANT_##name = (number),
#include "plants.def"
#undef PLANT
    AC_PLANT_NONE = 0
};

#ifdef AC_PLANTS
extern int ac_plant;
#define AC_PLANTED(name) (ac_plant == AC_PLANT_##name)
#else
#define AC_PLANTED(name) (AC_PLANT_##name == AC_PLANT_NONE)
#endif

#endif
