# Writes OUTPUT, a C file that holds the bytes of INPUT as NAME[] and their number as NAME_bytes.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"cli/cli.h\"\nconst unsigned char ${NAME}[] = {\n${bytes}};\nconst int ${NAME}_bytes = sizeof ${NAME};\n")
