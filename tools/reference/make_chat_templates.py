#!/usr/bin/env python3
"""Chat templates in the styles of many model families, rendered by transformers on nasty chats.

    python3 tools/reference/make_chat_templates.py tests/data/chat_templates.json

Needs transformers 5.24.0 and jinja2 3.1.6. The templates are written for these tests, with the
constructs of the families that they are named after. Each vector has the variables and either the
text (and the bytes that generation blocks made) or the message of the exception.
"""
import datetime
import json
import sys

from transformers.utils import chat_template_utils as reference


class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12, 34, 56)


reference.datetime = Frozen

SIMPLE = {
    "chatml": """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "chatml-default-system": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful assistant<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content']}}{% if (loop.last and add_generation_prompt) or not loop.last %}{{ '<|im_end|>' + '\\n'}}{% endif %}{% endfor %}
{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "llama2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "llama3": """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "llama3-tools": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message goes first, and is kept for later. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You can call these functions, as JSON.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {#- The first user message has the functions in front of it. #}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {{- "Functions:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "mistral": """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}""",
    "mistral-tools": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id|default('000000000', true) + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}""",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
""",
    "phi3": """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|system|>' + '\\n' + message['content'] + '<|end|>' + '\\n'}}{% elif (message['role'] == 'user') %}{{'<|user|>' + '\\n' + message['content'] + '<|end|>' + '\\n' + '<|assistant|>' + '\\n'}}{% elif message['role'] == 'assistant' %}{{message['content'] + '<|end|>' + '\\n'}}{% endif %}{% endfor %}""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
""",
    "deepseek-v3": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{{'<｜Assistant｜><｜calls｜>' + tool['type'] + '<｜sep｜>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments']|tojson + '\\n' + '```'}}{%- set ns.is_first = true -%}{%- else %}{{'\\n' + tool['function']['name']}}{%- endif %}{%- endfor %}{{'<｜end｜>'}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{%- if ns.is_tool %}{{'<｜outputs｜>' + message['content'] + '<｜end｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{{'<｜output｜>' + message['content'] + '<｜oend｜>'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}""",
    "smollm2": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "command-r": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'You are Command.' %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% elif message['role'] == 'assistant' %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}""",
    "command-r-tools": """{%- macro json_to_python_type(json_spec) %}
{%- set basic_type_map = {
    "string": "str",
    "number": "float",
    "integer": "int",
    "boolean": "bool"
} %}
{%- if basic_type_map[json_spec.type] is defined %}
    {{- basic_type_map[json_spec.type] }}
{%- elif json_spec.type == "array" %}
    {{- "List[" +  json_to_python_type(json_spec.items) + "]"}}
{%- elif json_spec.type == "object" %}
    {{- "Dict[str, " + json_to_python_type(json_spec.additionalProperties) + ']'}}
{%- elif json_spec.type is iterable %}
    {{- "Union[" }}
    {%- for t in json_spec.type %}
      {{- json_to_python_type({"type": t}) }}
      {%- if not loop.last %}
        {{- "," }}
    {%- endif %}
    {%- endfor %}
    {{- "]" }}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}
{%- macro tool_parser(tools, indent="    ") %}
{%- for tool in tools | rejectattr("type", "ne", "function") %}
    {{- "```python\\ndef " + tool.function.name + "(" }}
    {%- for param_name, param_fields in tool.function.parameters.properties|items %}
        {%- if loop.index0 != 0 %}
            {{- ", "}}
        {%- endif %}
        {{- param_name + ": " }}
        {%- if not param_name in tool.function.parameters.required %}
            {{- "Optional[" + json_to_python_type(param_fields) + "] = None"}}
        {%- else %}
            {{- json_to_python_type(param_fields) }}
        {%- endif %}
    {%- endfor %}
    {{- ') -> List[Dict]:\\n' ~ indent ~ '\"\"\"'}}
    {{- tool.function.description }}
    {{- '\"\"\"\\n    pass\\n```' }}
{%- endfor %}
{%- endmacro %}
{{- bos_token }}{{ tool_parser(tools or [], indent='  ') }}
{%- for message in messages %}<{{ message.role | upper }}>{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{ call.function.name|title }}:{{ call.function.arguments | dictsort | map('first') | join(',') }}
{%- endfor %}
{% endfor %}""",
    "granite": """{%- set roles = {'system': 'SYS', 'user': 'USR', 'assistant': 'AST', 'tool': 'TOOL'} -%}
{%- if tools -%}
{%- for tool in tools %}
{{ loop.index }}/{{ loop.length }} {{ tool | tojson(indent=2) }}
    {%- if not loop.last -%}
{{- '\\n\\n' -}}
    {%- endif %}
{%- endfor %}
{%- endif %}
{%- for m in messages %}
{%- set role = roles.get(m.role, m['role'] | capitalize) -%}
<{{ role }} {{ loop.cycle('odd', 'even') }} {{ 'last' if loop.last }}>
    {%- if loop.previtem is defined and loop.previtem.role == m.role %}(again){% endif %}
    {%- if m.content is not none %}{{ m.content | default('nothing', true) | replace('\\n', '\\n  ') }}{% endif %}
{% endfor %}
{%- if add_generation_prompt %}<AST>{% endif %}""",
    "olmo-generation": """{{ eos_token }}{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + '\\n' }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n' }}{% generation %}{{ message['content'] | default('', true) }}{{ eos_token }}{% endgeneration +%}

{% else %}
{{ '<|' + message['role'] + '|>' ~ message['content'] }}
{% endif %}
{% endfor %}""",
    "qwen3": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "vicuna": """{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% set rest = messages[1:] %}{% else %}{{ 'A chat between a curious user and an assistant.' }}{% set rest = messages %}{% endif %}{% for message in rest %}{% if message['role'] == 'user' %}{{ ' USER: ' + message['content'].strip() }}{% elif message['role'] == 'assistant' %}{{ ' ASSISTANT: ' + message['content'].strip() + eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ ' ASSISTANT:' }}{% endif %}""",
    "alpaca": """{{ (messages|selectattr('role', 'equalto', 'system')|list|last).content|trim if (messages|selectattr('role', 'equalto', 'system')|list) else '' }}

{% for message in messages %}
    {%- if message['role'] == 'user' -%}
### Instruction:
{{ message['content']|trim -}}
    {%- if not loop.last %}


{% endif %}
    {%- elif message['role'] == 'assistant' %}

### Response:
{{ message['content']|trim }}{{ eos_token }}
    {%- endif %}
{% endfor %}
{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}

### Response:
{% endif %}""",
    "exaone": """{% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '[|system|][|endofturn|]\\n' }}{% endif %}{{ '[|' + message['role'] + '|]' + message['content'] }}{% if loop.last and message['role'] == 'assistant' and not add_generation_prompt %}{% continue %}{% endif %}{% if message['role'] == 'user' %}{{ '\\n' }}{% else %}{{ '[|endofturn|]\\n' }}{% endif %}{% if message['content'] == 'stop' %}{% break %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '[|assistant|]' }}{% endif %}""",
    "seed-call": """{%- macro wrap(name, level=1) -%}<{{ name }}{{ '#' * level }}>{{ caller() if caller is defined else '-' }}</{{ name }}>{%- endmacro -%}
{%- for message in messages -%}
{%- call wrap(message.role, level=loop.index) -%}{{ message.content }}{%- endcall -%}
{%- endfor -%}
{%- filter upper | replace('X', 'y') %}
 tail x {{ messages | length }}
{% endfilter -%}
{%- set block | trim %}
  {{ messages | map(attribute='role') | join('+') }}
{% endset -%}
[{{ block }}] {{ wrap('none') }}{% with a = 1, b = a2 | default(2) %}{{ a + b }}{% endwith %}{% raw %}{{ not }} {% this %}{% endraw %}""",
}

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Tells <the> \"weather\" & 'more' é.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Düsseldorf, 東京"},
            "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 1e22},
            "tags": {"type": "array", "items": {"type": "string"}},
            "exact": {"type": "boolean", "default": False, "factor": 0.1}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "noop", "description": "", "parameters": {"type": "object", "properties": {}, "required": []}}},
]
U, A, S = "user", "assistant", "system"


def chat(*turns):
    return [{"role": role, "content": content} for role, content in turns]


CALL = {"id": "abcdef123", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "x": None, "f": [1.5, True]}}}
CHATS = [
    dict(messages=chat((U, "Hello"), (A, "Hi there!"))),
    dict(messages=chat((U, "  Hello \n\n"), (A, "\tHi\u3000there!\n "), (U, "and?"), (A, ""))),
    dict(messages=chat((S, "Be \"brief\" — it's déjà vu. 🦙"), (U, "日本語\n\nя"), (A, "<think>\n hm \n</think>\n\nok"), (U, "stop"))),
    dict(messages=chat((S, ""), (U, "")), add_generation_prompt=True),
    dict(messages=chat((U, "{{ 7*7 }} {% raise %} \\n <|im_end|>"), (A, "a'b\"c\\d"), (U, "x" * 300)), add_generation_prompt=True),
    dict(messages=chat((A, "I begin"), (U, "roles do not alternate"))),
    dict(messages=chat((U, "one"), (U, "two"), (A, "three"), (A, "four"))),
    dict(messages=chat((U, "?"), ("critic", "an unknown role"))),
    dict(messages=chat((S, "first"), (U, "Weather?")) + [{"role": A, "content": None, "tool_calls": [CALL]},
         {"role": "tool", "content": "{\"t\": 20}", "name": "get_weather", "tool_call_id": "abcdef123"}] + chat((A, "20 °C")), tools=TOOLS),
    dict(messages=chat((U, "Weather?")) + [{"role": A, "tool_calls": [CALL]},
         {"role": "tool", "content": {"t": [20, -0.5], "ok": True}, "tool_call_id": "abcdef123"}], tools=TOOLS, add_generation_prompt=True),
    dict(messages=chat((U, "no calls")), tools=TOOLS, add_generation_prompt=True, tools_in_user_message=False, enable_thinking=False, date_string="1 Jan 2025"),
    dict(messages=[{"role": U, "content": [{"type": "text", "text": " part 1"}, {"type": "image"}, {"type": "text", "text": "part 2 "}]}, {"role": A, "content": "fine"}]),
]
EXPRESSIONS = """1 + 2 * 3 - -4|abs|;7 // 2, -7 // 2, 7 % -3, 7 / 2, 2 ** 10;1 < 2 < 3, 1 < 3 < 2, not 1 == 2;'a' 'b' ~ 1 ~ none ~ true;[1, 2.0, 'x', none, (1,), {}];{'a': 1, "b": [2, 'it\\'s', "q\\"'"], 3: none}
'abc'[0] ~ 'abc'[-1] ~ 'abc'[5];'abcdef'[1:4], 'abcdef'[::-1], 'abcdef'[:-2], 'abcdef'[-3:], [1,2,3,4][::2], [1,2,3][5:];x, y.z;x.y;none.z;x + 1;'a' in 'cat', 1 in [1], 'k' in {'k': 0}, 'q' not in 'cat', 1 in x
x is defined, x is not defined, x is none, none is none, 1 is number, true is number, 'a' is string, [] is iterable, {} is mapping, 'a' is sequence, 3 is odd, 4 is even, 9 is divisibleby 3, 1 is eq 1, 2 is gt 1, 'a' is in ['a'], true is true, 1 is true, 1.0 is float, 1 is integer, false is boolean, range is callable
'  x '|trim ~ '|', 'xxaxx'|trim('x'), 'aBc dEf'|upper, 'aBc dEf'|lower, 'aBc dEf-ghi (jkl)'|title, 'aBc dEf'|capitalize, 'ÄÖß é'|upper, 'ÉÀ'|lower;[3, 1, 2]|sort, ['b', 'A', 'c']|sort, [1, 3, 2]|sort(reverse=true), ['b', 'B', 'a']|unique|list;[1, 2, 3]|sum, [1, 5, 2]|max, [4, 2]|min, []|first, [1]|last;[1, 2]|join, ['a', 1, none]|join('-'), 'abc'|join('.'), {'a': 1}|join
'abc'|length, [1]|count, {'a': 1}|length, '日本'|length;'5'|int + 1, 'x'|int, 'x'|int(7), 3.9|int, '3.7'|int, '1.5'|float, 2|float, 'x'|float;x|default('d'), ''|default('d'), ''|default('d', true), none|d('e', true), false|default(1);1.0, 1e22, 1e16, 123456789.125, 1e-5, 0.0001, 0.1 + 0.2, -0.0, 1/3, 100.0, 1e15
'a-b-c'.split('-'), ' a  b '.split(), 'a-b-c'.split('-', 1), 'a-b-c'.rsplit('-', 1), 'abc'.split('x'), 'a\\nb\\r\\nc\\n'.splitlines(), ''.split(), ''.split('x');'abc'.startswith('ab'), 'abc'.endswith(('x', 'c')), 'abcabc'.find('c'), 'abcabc'.rfind('c'), 'abcabc'.count('b'), 'abc'.find('x'), 'éa'.index('a');'aXbX'.replace('X', '-'), 'aXbX'.replace('X', '-', 1), 'ab'.replace('', '.'), 'aXb'|replace('X', 1);'--a-'.strip('-'), 'xya'.lstrip('xy'), 'abc'.rstrip('bc'), '-'.join(['a', 'b']), 'a:b:c'.partition(':'), 'a:b:c'.rpartition(':'), 'prefix'.removeprefix('pre'), 'x.py'.removesuffix('.py'), '7'.zfill(3), '-7'.zfill(4)
'12'.isdigit(), 'ab1'.isalpha(), 'ab1'.isalnum(), ' '.isspace(), 'AB'.isupper(), 'aB'.islower(), ''.isdigit();{'a': 1, 'b': 2}.items()|list, {'a': 1}.keys()|list, {'a': 1}.values()|list, {'a': 1}.get('b'), {'a': 1}.get('b', 5), {'items': 3}.items()|list, {'items': 3}['items'];{'b': 1, 'a': 2}|dictsort, {'b': 1, 'a': 2}|dictsort(by='value'), {'a': 1}|items|list
[{'a': 1}, {'a': 2}]|map(attribute='a')|list, ['a', 'b']|map('upper')|list, [{'a': {'b': 3}}]|map(attribute='a.b')|list, [{}]|map(attribute='a', default='z')|list;[0, 1, '', 'x']|select|list, [0, 1, 2]|reject('odd')|list, [{'a': 1}, {'a': 0}, {}]|selectattr('a')|list, [{'a': 1}, {'b': 0}]|selectattr('a', 'defined')|list, [{'a': 1}, {'a': 2}]|rejectattr('a', 'equalto', 1)|list;[1, 2]|reverse|list, 'abc'|reverse, (1, 2) + (3,), [1] + [2], 'ab' * 3, [0] * 2, 3 * 'x'
{'a': [1, {'b': none}], 'é': '<&>\\t\\u0001'}|tojson, {'a': 1, 'b': {}}|tojson(indent=2), [1, 2]|tojson(indent=2), []|tojson(indent=2), {'é': 1}|tojson(ensure_ascii=true), {'b': 1, 'a': 2}|tojson(sort_keys=true), [1, 2]|tojson(separators=(',', ':')), 1.5|tojson, 1e100|tojson, 'x\\u007fy\\u2028'|tojson;x|tojson;range|tojson;'a\\nb\\n\\nc'|indent, 'a\\nb'|indent(2, true), 'a\\nb\\n'|indent(1);'a' if true, 'a' if false else 'b', ('a' if false) is defined, 1 if x else 2 if y else 3
1 and 0 or 'z', 0 or '' or none, 1 and 2, not '' and 'q';range(3)|list, range(1, 4)|list, range(5, 0, -2)|list, namespace(a=1).a, dict(a=1, b=2), dict({'q': 1}, w=2);undefined_function();raise_exception('own words: ' ~ 1);[1, 2, 3].append(4);'x'.upper().lower() ~ 'y'|upper;-1|abs, (-1)|abs, - 2 ** 2, 2 ** -1;'\\x41\\u00e9\\U0001F600\\101\\q\\t|';'tab\\tq', ['tab\\t\\n\\\\ é \\x7f\\xa0\\u200b']
strftime_now('%d %b %Y %H:%M'), strftime_now is defined;1 == 1.0, true == 1, 'a' == 1, [1] == [1.0], {'a': 1} == {'a': 1}, none == x, x == y;'b' > 'a', [1, 2] < [1, 3], 1 < 'a';1_000, 1e3, 5.;(1), (1,), (), 1,;{'a': 1}.a, {'a': {'b': 2}}.a.b, {'a': [5, 6]}.a.1, [1][true];''|string ~ none|string ~ [1]|string;loop;'a b'|safe;[3] is sameas [3], none is sameas none;1 is lessthan 2, 'A' is upper, 'a' is lower""".replace("\n", ";").split(";")
STATEMENTS = [
    "{% for a in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.changed(a // 2) }}|{% endfor %}",
    "{% for a in [] %}x{% else %}none{% endfor %}{% for a in x %}x{% else %}none{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}{% for c in 'hé' %}{{ c }},{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for a in [1,2,3,4] if a is even %}{{ a }}{{ loop.index }}{% endfor %}",
    "{% set x = 1 %}{% for a in [1,2] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{{ ns.other is defined }}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c is defined }}{% endmacro %}{{ f(1) }},{{ f(1, 3) }},{{ f(b=5, a=4) }},{{ f() }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{% set q = 7 %}{% macro g() %}{{ q }}{% endmacro %}{{ g() }}",
    "{% macro f() %}{{ f(1) }}{% endmacro %}{{ f(1) }}",
    "a\n  {% if true %}\n  b\n  {%- endif %}\nc\n  {{ 1 }}\n  {{- 2 -}}\n  d\n\n",
    "  {# comment #}\n x {#- left -#}  y\n  {%+ if true %}\n z{% endif +%}\n  \t{% if 1 %}q{% endif %}\n",
    "a\r\nb{% if 1 %}\r\nc{% endif %}\rd\n\n", "x  {%- raw -%}  {{ y }}  {%- endraw -%}  z", "{% raw %}\n {% if %} {% endraw %}\nq",
    "{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ \"%}\" }}{{ {'a': '}}'}.a }}", "{{- 1 }}  {{ 2 -}}  \n 3", "{%- set x = 3 -%}\n\n {{ x }}\n",
    "{% generation %}a{% endgeneration %} b {% generation %}é{{ 1 }}{% endgeneration %}", "{% for i in range(3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}{% for i in range(9) %}{{ i }}{% if i == 2 %}{% break %}{% endif %}{% endfor %}",
    "{% set x %}a{{ 1 }}{% endset %}{{ x }}{% set y | upper | trim %} ab {% endset %}{{ y }}", "{% if x %}a{% elif 0 %}b{% elif 1 %}c{% else %}d{% endif %}",
    "{{ 1 }", "{% if 1 %}", "{% for %}", "{% endif %}", "{{ 1 + }}", "{{ (1 }}", "{{ x | nothing }}", "{{ x is nothing }}", "{% unknown %}", "{{ 'a }}", "{# never", "{% set 1 = 2 %}", "{{ a.b.c }}", "{{ {}.a.b }}",
    "{{ namespace(_a=1) }}", "{% set n = namespace() %}{% set n._a = 1 %}", "{% set x = {} %}{% set x.a = 1 %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{{ range(3) | length }}", "{% break %}",
]


def encode(spans, text):
    return [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]


def vector(source, variables, **more):
    case = dict(more, variables=variables)
    try:
        compiled = reference._compile_jinja_template(source)
        text, spans = reference._render_with_assistant_indices(compiled, **{
            "messages": None, "tools": None, "documents": None, "add_generation_prompt": False, **variables})
        case["text"] = text
        if spans:
            case["spans"] = encode(spans, text)
    except Exception as problem:  # whatever it is, ours refuses too
        case["error"] = str(problem) if type(problem).__name__ == "TemplateError" else ""
    return case


def main():
    families, vectors = dict(SIMPLE), []
    if len(sys.argv) > 2:  # more of them, to compare without keeping them
        families = {path: open(path).read() for path in sys.argv[2:]}
    for name, template in families.items():
        for variables in CHATS:
            given = {"add_generation_prompt": False, **variables, "bos_token": "<s>", "eos_token": "</s>"}
            vectors.append(vector(template, given, family=name))
    alone = [] if len(sys.argv) > 2 else ["{{ [" + e + "] }}" if "," in e and "|tojson" not in e else "{{ " + e + " }}" for e in EXPRESSIONS] + STATEMENTS
    for template in alone:
        vectors.append(vector(template, {}, template=template))
    with open(sys.argv[1], "w") as out:
        out.write("{\"families\": {\n")
        out.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in families.items()))
        out.write("},\n\"vectors\": [\n")
        out.write(",\n".join(json.dumps(v, ensure_ascii=False) for v in vectors))
        out.write("]}\n")


main()
