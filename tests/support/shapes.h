/* The small models of the equality tests: together they make every tp of the matrix legal, with
 * widths and vocabularies that divide by nothing. */
#ifndef LS_TESTS_SHAPES_H
#define LS_TESTS_SHAPES_H

typedef struct ls_test_shape {
  const char *name, *config;
} ls_test_shape;

enum { LS_TEST_SHAPES = 3 };

static const ls_test_shape ls_test_shapes[LS_TEST_SHAPES] = {
    {"gpt2-tied",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 8, \"n_embd\": 30,"
     " \"n_layer\": 2, \"n_head\": 30, \"n_inner\": 43, \"resid_pdrop\": 0.1,"
     " \"embd_pdrop\": 0.2, \"attn_pdrop\": 0.15}"},
    {"llama-gqa-free",
     "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 32,"
     " \"intermediate_size\": 45, \"num_hidden_layers\": 2, \"num_attention_heads\": 16,"
     " \"num_key_value_heads\": 4, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": false}"},
    {"llama-gqa-tied",
     "{\"model_type\": \"llama\", \"vocab_size\": 43, \"hidden_size\": 24,"
     " \"intermediate_size\": 31, \"num_hidden_layers\": 3, \"num_attention_heads\": 12,"
     " \"num_key_value_heads\": 3, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": true}"},
};

#endif
