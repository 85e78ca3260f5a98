// Of gloo, which libtorch contains and whose headers its wheel leaves out: the names that c10d's header mentions. Nothing
// here is called, and no object of these types is made outside libtorch. Real headers come first where there are any.
#pragma once
