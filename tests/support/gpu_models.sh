# Small models for tests of commands on GPUs, as FAMILY.json in the test's folder; sourced behind
# small_run.sh. Heads of at least 8 numbers, which kernels of 16 bits take.
cat >llama.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96,
 "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 64}
END
cat >small.json <<'END'
{"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
 "max_position_embeddings": 64}
END
cat >gpt2.json <<'END'
{"model_type": "gpt2", "vocab_size": 262, "n_embd": 48, "n_layer": 2, "n_head": 3,
 "n_positions": 64, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
END
cat >gemma.json <<'END'
{"model_type": "gemma2", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
 "max_position_embeddings": 64, "sliding_window": 8, "query_pre_attn_scalar": 32,
 "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
END
cat >mixtral.json <<'END'
{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
 "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64}
END
cat >qwen.json <<'END'
{"model_type": "qwen3_moe", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48,
 "moe_intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "head_dim": 16, "num_experts": 8, "num_experts_per_tok": 3,
 "norm_topk_prob": false, "max_position_embeddings": 64}
END
cat >deepseek.json <<'END'
{"model_type": "deepseek_v3", "vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 48,
 "moe_intermediate_size": 24, "max_position_embeddings": 64, "q_lora_rank": 16, "kv_lora_rank": 8,
 "qk_rope_head_dim": 4, "qk_nope_head_dim": 12, "v_head_dim": 8, "n_routed_experts": 8,
 "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
 "first_k_dense_replace": 1}
END
cat >oss.json <<'END'
{"model_type": "gpt_oss", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 24,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
 "max_position_embeddings": 64, "sliding_window": 6, "num_local_experts": 4,
 "num_experts_per_tok": 2, "tie_word_embeddings": false}
END
